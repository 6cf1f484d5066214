#include <gradpool/task.h>

double helper(double x); /* not a task: must stay hidden in the object */

double helper(double x)
{
    return x * x;
}

GP_TASK gp_status square(gp_task *task, gp_error *err)
{
    size_t bytes;
    const double *x = gp_task_argument(task, &bytes);
    double y;

    if (bytes != sizeof(*x))
        return gp_fail(err, GP_EINVAL, "the argument has %zu bytes; expected one double", bytes);
    y = helper(*x);
    return gp_task_result(task, &y, sizeof(y), err);
}
