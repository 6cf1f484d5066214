/* Find the best of 200 parameters: with which damping does an oscillator come to rest first? The
 * workers share the 200 iterations of a parfor loop. Each iteration calls the task `settle` from
 * parfor_tasks.c with one element of `damping`, and writes one element of `seconds`.
 *
 *   cmake -B build && cmake --build build && build/parfor */
#include <gradpool/gradpool.h>
#include <stdio.h>

enum { COUNT = 200 };

int main(void)
{
    double damping[COUNT], seconds[COUNT], best = 0.0;
    gp_parfor_request loop = { .first = 1,
                               .last = COUNT,
                               .input = damping,
                               .input_bytes = sizeof(damping[0]),
                               .output = seconds,
                               .output_bytes = sizeof(seconds[0]),
                               .reduction = GP_REDUCTION_MIN_F64,
                               .reduced = &best,
                               .reduced_bytes = sizeof(best) };
    gp_pool *pool = NULL;
    gp_team *team = NULL;
    gp_error err = { 0 };
    gp_status status = gp_pool_open(&pool, NULL, &err);

    for (int i = 0; i < COUNT; i++)
        damping[i] = 0.01 * (i + 1);
    if (status == GP_OK)
        status = gp_team_open(&team, pool, NULL, &err);
    if (status == GP_OK)
        status = gp_function_find(&loop.function, team, "build/parfor_tasks.so:settle", &err);
    if (status == GP_OK)
        status = gp_parfor(team, &loop, &err);
    for (int i = 0; status == GP_OK && i < COUNT; i++)
        if (seconds[i] == best)
            printf("damping %.2f settles within 2 %% after %.2f s, the fastest of %d\n", damping[i], best,
                   COUNT);
    if (status != GP_OK)
        fprintf(stderr, "parfor: %s\n", err.message);
    gp_team_close(team);
    gp_pool_close(pool);
    return status == GP_OK ? 0 : 1;
}
