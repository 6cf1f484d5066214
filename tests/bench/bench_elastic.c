/* bench_elastic.c: measure the time until a worker that is added to a pool computes.
 *
 *   bench_elastic [--rounds N]
 *
 * An elastic team has the only worker of a pool and runs calls of 10 ms. The pool then gets a
 * second worker. Prints the time from that request to the start of the first call on the second
 * worker, in ms, a line for each round [10]. peers_elastic.py measures the same with Dask and
 * Ray. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GP_TEST_NO_MAIN
#include "tests/service/pools.h"

#include "client/gradpool.h"

/* WARM_UP: calls that end before the second worker is added. */
enum { CALLS = 400, WARM_UP = 10 };
static const double CALL_MS = 10;

static void die(const char *what, const gp_error *err)
{
    fprintf(stderr, "bench_elastic: %s: %s\n", what, err->message);
    exit(2);
}

static gp_future *submit(gp_team *team, const gp_function *function)
{
    gp_future *future;
    gp_error err;

    if (gp_parfeval(
            &future, team,
            &(gp_parfeval_request){ .function = function, .argument = &CALL_MS, .bytes = sizeof(CALL_MS) },
            &err) != GP_OK)
        die("call", &err);
    return future;
}

/* Run the calls on one worker, add the second one, and return the time until it starts a call. */
static double round_ms(gp_pool *pool, gp_team *team, const gp_function *function)
{
    static gp_future *futures[CALLS];
    int64_t begin_ns = 0, first_ns = INT64_MAX;
    gp_future_info info;
    gp_error err;

    for (int i = 0; i < CALLS; i++)
        futures[i] = submit(team, function);
    if (gp_futures_wait(futures, WARM_UP, GP_WAIT_ALL, -1, &err) != GP_OK)
        die("wait", &err);
    /* Times of futures count from the opening of the team. The submit time of this call stands for
     * the time of the resize. */
    gp_future *marker = submit(team, function);

    gp_future_get_info(marker, &info);
    begin_ns = info.submitted_ns;
    if (gp_pool_resize(pool, 2, NULL, &err) != GP_OK)
        die("resize", &err);
    if (gp_futures_wait(futures, CALLS, GP_WAIT_ALL, -1, &err) != GP_OK ||
        gp_futures_wait(&marker, 1, GP_WAIT_ALL, -1, &err) != GP_OK)
        die("wait", &err);
    gp_future_free(marker);
    for (int i = 0; i < CALLS; i++) {
        gp_future_get_info(futures[i], &info);
        if (info.worker == 2 && info.started_ns < first_ns)
            first_ns = info.started_ns;
        gp_future_free(futures[i]);
    }
    return first_ns == INT64_MAX ? NAN : (double)(first_ns - begin_ns) * 1e-6;
}

/* Remove the second worker and wait until the team has one. */
static void shrink(gp_pool *pool, gp_team *team, const gp_function *function)
{
    gp_error err;

    if (gp_pool_resize(pool, 1, NULL, &err) != GP_OK)
        die("resize", &err);
    while (gp_team_size(team) != 1) {
        gp_future *future = submit(team, function);

        if (gp_future_result(future, NULL, NULL, &err) != GP_OK)
            die("call", &err);
        gp_future_free(future);
    }
}

int main(int argc, char **argv)
{
    gp_pool_options options = { .workers = 1, .devices = "cpu" };
    gp_team_options elastic = { .lease = { .workers_min = 1, .workers_max = 2 }, .elastic = true };
    const gp_function *function;
    int rounds = argc == 3 && strcmp(argv[1], "--rounds") == 0 ? atoi(argv[2]) : 10;
    gp_pool *pool;
    gp_team *team;
    gp_error err;

    if ((argc != 1 && argc != 3) || rounds < 1) {
        fputs("usage: bench_elastic [--rounds N]\n", stderr);
        return 9;
    }
    setenv("GP_BUILD_DIR", BUILD_DIRECTORY, 0);
    pools_begin(NULL);
    if (gp_pool_open(&pool, &options, &err) != GP_OK || gp_team_open(&team, pool, &elastic, &err) != GP_OK ||
        gp_function_find(&function, team, TEAM_TASKS ":sleep_ms", &err) != GP_OK)
        die("pool", &err);
    for (int i = 0; i < rounds; i++) {
        printf("%.1f\n", round_ms(pool, team, function));
        fflush(stdout);
        shrink(pool, team, function);
    }
    gp_team_close(team);
    gp_pool_close(pool);
    pools_end();
    return 0;
}
