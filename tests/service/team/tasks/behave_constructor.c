/* behave_constructor.c: an object that crashes the process while it is loaded. */
#include <gradpool/task.h>
#include <stdlib.h>

__attribute__((constructor)) static void on_load(void)
{
    abort();
}

GP_TASK gp_status nothing(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}
