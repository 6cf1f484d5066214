/* behave_abi.c: an object with an ABI version that no worker supports. */
#define GP_TASK_NO_ABI
#include <gradpool/task.h>

__attribute__((visibility("default"))) extern uint32_t gp_task_object_abi;
__attribute__((visibility("default"))) uint32_t gp_task_object_abi = 4000;

GP_TASK gp_status nothing(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}
