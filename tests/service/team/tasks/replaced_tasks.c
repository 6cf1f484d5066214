/* replaced_tasks.c: several functions, so that a worker must look up more than one. */
#include <stdlib.h>

#include <gradpool/task.h>

GP_TASK gp_status first(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}

GP_TASK gp_status die(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    abort();
}

GP_TASK gp_status last(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}
