/* Compute pi by the midpoint rule: each rank sums every size-th slice, and an all-reduce sums the
 * ranks. */
#include <gradpool/task.h>

GP_TASK gp_status pi(gp_task *task, gp_error *err)
{
    size_t bytes;
    const uint64_t *slices = gp_task_argument(task, &bytes);
    double sum = 0.0;
    gp_status status;

    if (bytes != sizeof(*slices) || *slices == 0)
        return gp_fail(err, GP_EINVAL, "pi needs the number of slices (uint64, 1 or more) as its argument");
    for (uint64_t i = gp_task_index(task) - 1; i < *slices; i += gp_task_size(task)) {
        double x = ((double)i + 0.5) / (double)*slices;

        sum += 4.0 / (1.0 + x * x) / (double)*slices;
    }
    gp_task_log(task, "index %u of %u: partial sum %.6f", gp_task_index(task), gp_task_size(task), sum);
    status = gp_task_all_reduce(task, &sum, sizeof(sum), gp_combine_sum_f64, NULL, err);
    return status == GP_OK ? gp_task_result(task, &sum, sizeof(sum), err) : status;
}
