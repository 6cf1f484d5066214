/* Sweep over the damping of an oscillator: each iteration computes one settling time. */
#include <gradpool/task.h>
#include <math.h>

/* Return the time, in seconds, after which the solution to x'' + 2 d x' + x = 0 with x(0) = 1 stays
 * within 2 % of 0. */
static double settling_time(double damping)
{
    const double step = 1e-3;
    double x = 1.0, v = 0.0, settled = 0.0;

    for (double t = 0.0; t < 60.0; t += step) {
        v -= step * (2.0 * damping * v + x);
        x += step * v;
        if (fabs(x) > 0.02)
            settled = t;
    }
    return settled;
}

GP_TASK gp_status settle(gp_task *task, gp_error *err)
{
    size_t in_bytes, out_bytes, best_bytes;
    const double *damping = gp_task_input(task, &in_bytes);
    double *seconds = gp_task_output(task, &out_bytes), *best = gp_task_accumulator(task, &best_bytes);

    if (in_bytes != sizeof(double) || out_bytes != sizeof(double) || best_bytes != sizeof(double))
        return gp_fail(err, GP_EINVAL,
                       "settle needs an input, an output and an accumulator of one double each");
    *seconds = settling_time(*damping);
    *best = fmin(*best, *seconds);
    return GP_OK;
}
