/* Futures: dependent calls, results in completion order, and a queue for progress.
 *
 *   cc -shared -fPIC futures_tasks.c -o futures_tasks.so
 *   cc futures.c -lgradpool -o futures
 *   ./futures */
#include <gradpool/gradpool.h>
#include <stdio.h>

enum { PARTS = 4, COUNT = 1000000 };

static void on_progress(void *context, uint32_t worker, const void *data, size_t bytes)
{
    const uint32_t *range = data;

    (void)context;
    (void)bytes;
    printf("worker %u searched %u .. %u\n", worker, range[0], range[1] - 1);
}

int main(int argc, char **argv)
{
    gp_parfeval_request make = { 0 }, search = { 0 };
    gp_pool *pool = NULL;
    gp_team *team = NULL;
    gp_queue *queue = NULL;
    gp_future *table, *next;
    const uint32_t *longest;
    char name[512];
    size_t bytes;
    gp_error err = { 0 };
    gp_status status = gp_pool_open(&pool, NULL, &err);

    if (status == GP_OK)
        status = gp_team_open(&team, pool, NULL, &err);
    if (status == GP_OK)
        status = gp_queue_open(&queue, team, "progress", &(gp_queue_options){ .on_item = on_progress }, &err);
    snprintf(name, sizeof(name), "%s:make_table", argc > 1 ? argv[1] : "futures_tasks.so");
    if (status == GP_OK)
        status = gp_function_find(&make.function, team, name, &err);
    snprintf(name, sizeof(name), "%s:search", argc > 1 ? argv[1] : "futures_tasks.so");
    if (status == GP_OK)
        status = gp_function_find(&search.function, team, name, &err);
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
