/* Tasks that share a table on their worker: make_table creates the table, search scans one part. */
#include <gradpool/task.h>
#include <string.h>

enum { COUNT = 1000000 };

/* Store a table whose entry n is the number of Collatz steps (n / 2 or 3 n + 1) from n to 1. */
GP_TASK gp_status make_table(gp_task *task, gp_error *err)
{
    static uint16_t table[COUNT];

    for (uint64_t start = 2; start < COUNT; start++)
        for (uint64_t n = start; n != 1; table[start]++)
            n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    return gp_task_put(task, "table", table, sizeof(table), err);
}

/* Return the index and value of the largest table entry in the range given as the argument. */
GP_TASK gp_status search(gp_task *task, gp_error *err)
{
    size_t bytes;
    const uint16_t *table = gp_task_get(task, "table", &bytes);
    const uint32_t *range = gp_task_argument(task, &bytes);
    uint32_t longest[2] = { 0, 0 };
    gp_status status;

    if (table == NULL || bytes != 2 * sizeof(*range) || range[1] > COUNT)
        return gp_fail(err, GP_EINVAL, "search needs a table, and a range below %d as its argument", COUNT);
    for (uint32_t n = range[0]; n < range[1]; n++)
        if (table[n] > longest[1])
            memcpy(longest, (uint32_t[]){ n, table[n] }, sizeof(longest));
    status = gp_task_queue(task, "progress", range, bytes, err);
    return status == GP_OK ? gp_task_result(task, longest, sizeof(longest), err) : status;
}
