/* behave_missing.c: an object that calls a function missing in all workers. */
#include <gradpool/task.h>

extern gp_status gp_task_of_tomorrow(gp_task *task, gp_error *err);

GP_TASK gp_status nothing(gp_task *task, gp_error *err)
{
    return gp_task_of_tomorrow(task, err);
}
