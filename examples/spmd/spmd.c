/* Compute pi on all workers in the pool: run the task `pi` from spmd_tasks.c once on each worker,
 * and print the result that each worker returns.
 *
 *   cmake -B build && cmake --build build && build/spmd */
#include <gradpool/gradpool.h>
#include <stdio.h>

static void on_log(void *context, uint32_t worker, const char *line)
{
    (void)context;
    printf("worker %u: %s\n", worker, line);
}

int main(void)
{
    uint64_t slices = 10000000;
    gp_spmd_request request = { .argument = &slices, .bytes = sizeof(slices) };
    gp_pool *pool = NULL;
    gp_team *team = NULL;
    gp_spmd_result *block = NULL;
    const double *pi;
    size_t bytes;
    gp_error err = { 0 };
    gp_status status = gp_pool_open(&pool, NULL, &err);

    if (status == GP_OK)
        status = gp_team_open(&team, pool, &(gp_team_options){ .log = on_log }, &err);
    if (status == GP_OK)
        status = gp_function_find(&request.function, team, "build/spmd_tasks.so:pi", &err);
    if (status == GP_OK)
        status = gp_spmd(&block, team, &request, &err);
    for (uint32_t index = 1; status == GP_OK && index <= gp_spmd_result_size(block); index++) {
        status = gp_spmd_result_get(block, index, (const void **)&pi, &bytes, &err);
        if (status == GP_OK)
            printf("index %u: %.15f\n", index, *pi);
    }
    if (status != GP_OK)
        fprintf(stderr, "spmd: %s\n", err.message);
    gp_spmd_result_free(block);
    gp_team_close(team);
    gp_pool_close(pool);
    return status == GP_OK ? 0 : 1;
}
