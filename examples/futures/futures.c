/* Find the number below a million with the longest Collatz sequence, with calls that return at once
 * and give a future for the result. One call makes a table on a worker, and four more search it
 * on the same worker. The program prints the results in the order of completion, and the progress
 * that the tasks send to a queue.
 *
 *   cmake -B build && cmake --build build && build/futures */
#include <gradpool/gradpool.h>
#include <stdio.h>

enum { PARTS = 4, COUNT = 1000000 };

static void on_progress(void *context, uint32_t worker, const void *data, size_t bytes)
{
    const uint32_t *range = data;

    (void)context;
    (void)worker;
    (void)bytes;
    printf("searched %u .. %u\n", range[0], range[1] - 1);
}

int main(void)
{
    gp_parfeval_request make = { 0 }, search = { 0 };
    gp_pool *pool = NULL;
    gp_team *team = NULL;
    gp_queue *queue = NULL;
    gp_future *table, *next;
    const uint32_t *longest;
    size_t bytes;
    gp_error err = { 0 };
    gp_status status = gp_pool_open(&pool, NULL, &err);

    if (status == GP_OK)
        status = gp_team_open(&team, pool, NULL, &err);
    if (status == GP_OK)
        status = gp_queue_open(&queue, team, "progress", &(gp_queue_options){ .on_item = on_progress }, &err);
    if (status == GP_OK)
        status = gp_function_find(&make.function, team, "build/futures_tasks.so:make_table", &err);
    if (status == GP_OK)
        status = gp_function_find(&search.function, team, "build/futures_tasks.so:search", &err);
    if (status == GP_OK)
        status = gp_parfeval(&table, team, &make, &err);
    /* Start the searches after make_table, on the worker that has the table. */
    for (uint32_t i = 0; status == GP_OK && i < PARTS; i++) {
        search.argument = (uint32_t[]){ i * COUNT / PARTS, (i + 1) * COUNT / PARTS };
        search.bytes = 2 * sizeof(uint32_t);
        search.same_worker_as = table;
        status = gp_parfeval(&next, team, &search, &err);
    }
    while (status == GP_OK && gp_team_as_completed(team, &next, -1, &err) == GP_OK)
        if ((status = gp_future_result(next, (const void **)&longest, &bytes, &err)) == GP_OK &&
            next != table)
            printf("from %u it takes %u steps\n", longest[0], longest[1]);
    if (status != GP_OK)
        fprintf(stderr, "futures: %s\n", err.message);
    gp_team_close(team);
    gp_pool_close(pool);
    return status == GP_OK ? 0 : 1;
}
