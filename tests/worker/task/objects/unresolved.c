/* unresolved.c: calls a function that no library defines. */
#include <gradpool/task.h>

int a_function_of_a_library_that_was_forgotten(int);

GP_TASK gp_status call_it(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return a_function_of_a_library_that_was_forgotten(1) == 0 ? GP_OK : GP_EIO;
}
