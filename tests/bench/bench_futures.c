/* bench_futures.c: measure futures while workers are killed, with different durations, and with
 * needs.
 *
 *   bench_futures kills [--rounds N] [--gap MS] [--limit MS] [--seed N]
 *   bench_futures mixed [--rounds N] [--seed N]
 *   bench_futures needs [--rounds N]
 *   bench_futures --help
 *
 * kills: a team of four workers. In every second round worker 1 is killed, and worker 2 follows 0
 * to 20 ms later (--gap). Meanwhile the client calls workers 3 and 4, one call at a time. The
 * longest call in each round is compared with the longest call in all rounds without kills: an
 * excess over 100 ms (--limit) is a stall, and the exit code is 1. One thread per core sleeps for 1
 * ms at a time; a late wakeup is a stall of the host. Host stalls that overlap a call (the longest
 * of the cores) are subtracted from the call, and such calls are listed if this changes the
 * verdict.
 *
 * mixed: eight calls of 1 s and 500 calls of 1 ms in random order on four workers. Prints the
 * elapsed time and the time of list scheduling with the same durations in the same order.
 *
 * needs: 500 calls of 1 ms and 5000 empty calls on four workers, in turn without needs and with a
 * resource that all workers have. Prints the median of the rounds and of their ratios. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define GP_TEST_NO_MAIN
#include "tests/service/pools.h"

#include "client/gradpool.h"
#include "tests/bench/cores.h"

enum {
    WORKERS = 4,
    ROUND_MS = 250,
    CORES_MAX = 64,
    STALLS_MAX = 1 << 16,
    STALL_NS = 2000000,
    CALLS_MAX = 1 << 16
};
enum { LONG_CALLS = 8, CALLS = 508, LONG_MS = 1000, SHORT_MS = 1 };
enum { NEEDS_CALLS = 500, NEEDS_EMPTY = 5000, NEEDS_ROUNDS_MAX = 10000 };

static const char usage[] =
    "usage: bench_futures kills [--rounds N] [--gap MS] [--limit MS] [--seed N]\n"
    "       bench_futures mixed [--rounds N] [--seed N]\n"
    "       bench_futures needs [--rounds N]\n"
    "\n"
    "kills    calls to workers 3 and 4 of a team while workers 1 and 2 are killed; exit code 1: a call "
    "stalled\n"
    "mixed    eight calls of 1 s among 500 of 1 ms on four workers, beside list scheduling of the same "
    "durations\n"
    "needs    calls with needs beside calls without, in turn\n"
    "\n"
    "  --rounds N   rounds with kills [500], or repetitions of mixed [5] and needs [20]\n"
    "  --gap MS     longest time between the two kills [20]\n"
    "  --limit MS   allowed time of a call beyond the longest call of the rounds without kills [100]\n"
    "  --seed N     seed of the times between kills, or of the order of calls [1]\n";

typedef struct options {
    uint32_t rounds, gap_ms, limit_ms;
    uint64_t seed;
} options;

typedef struct bench {
    gp_pool *pool;
    gp_team *team;
    const gp_function *nothing, *pid, *sleep_ms;
} bench;

static void die(const char *what, const gp_error *err)
{
    fprintf(stderr, "bench_futures: %s: %s\n", what, err->message);
    exit(2);
}

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

static const gp_function *find(bench *b, const char *name)
{
    const gp_function *found;
    char path[600];
    gp_error err;

    snprintf(path, sizeof(path), "%s:%s", TEAM_TASKS, name);
    if (gp_function_find(&found, b->team, path, &err) != GP_OK)
        die(name, &err);
    return found;
}

static void begin(bench *b)
{
    gp_error err;

    setenv("GP_BUILD_DIR", BUILD_DIRECTORY, 0);
    pools_begin(NULL);
    if (gp_pool_open(&b->pool,
                     &(gp_pool_options){ .workers = WORKERS, .devices = "cpu", .resources = "license=2" },
                     &err) != GP_OK ||
        gp_team_open(&b->team, b->pool, NULL, &err) != GP_OK)
        die("pool", &err);
    b->nothing = find(b, "nothing");
    b->pid = find(b, "pid");
    b->sleep_ms = find(b, "sleep_ms");
}

static void end(bench *b)
{
    gp_team_close(b->team);
    gp_pool_close(b->pool);
    pools_end();
}

/* ---- host stalls ---- */

typedef struct stall {
    int64_t begin_ns, end_ns;
} stall;

typedef struct meter {
    int core;
    pthread_t thread;
    _Atomic uint32_t count;
    stall stalls[STALLS_MAX];
} meter;

static meter meters[CORES_MAX];
static uint32_t meter_count;
static _Atomic bool metering;

static void *meter_run(void *context)
{
    meter *m = context;

    cores_pin(m->core);
    while (metering) {
        int64_t due_ns = gp_now_ns() + 1000000;

        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        int64_t now_ns = gp_now_ns();

        if (now_ns - due_ns < STALL_NS || m->count == STALLS_MAX)
            continue;
        m->stalls[m->count] = (stall){ due_ns, now_ns };
        m->count++;
    }
    return NULL;
}

static void meters_begin(void)
{
    cpu_set_t set;

    sched_getaffinity(0, sizeof(set), &set);
    metering = true;
    for (int core = 0; core < CPU_SETSIZE && meter_count < CORES_MAX; core++)
        if (CPU_ISSET(core, &set)) {
            meters[meter_count].core = core;
            pthread_create(&meters[meter_count].thread, NULL, meter_run, &meters[meter_count]);
            meter_count++;
        }
}

static void meters_end(void)
{
    metering = false;
    for (uint32_t i = 0; i < meter_count; i++)
        pthread_join(meters[i].thread, NULL);
}

/* Return the stalled time within the interval; the maximum over the cores. */
static int64_t stalled_ns(int64_t begin_ns, int64_t end_ns)
{
    int64_t most = 0;

    for (uint32_t i = 0; i < meter_count; i++) {
        int64_t sum = 0;

        for (uint32_t k = 0; k < meters[i].count; k++) {
            const stall *s = &meters[i].stalls[k];
            int64_t from = s->begin_ns > begin_ns ? s->begin_ns : begin_ns;
            int64_t to = s->end_ns < end_ns ? s->end_ns : end_ns;

            sum += to > from ? to - from : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

/* ---- kills ---- */

typedef struct killer {
    pid_t pids[2];
    uint32_t gap_us;
} killer;

static void *killer_run(void *context)
{
    const killer *k = context;

    gp_sleep_ms(10);
    kill(k->pids[0], SIGKILL);
    nanosleep(&(struct timespec){ .tv_nsec = k->gap_us * 1000L }, NULL);
    kill(k->pids[1], SIGKILL);
    return NULL;
}

/* Return a worker's pid; wait until the worker is available. */
static pid_t pid_of(bench *b, uint32_t worker)
{
    gp_future *future;
    const void *data;
    size_t bytes;
    gp_error err;
    pid_t pid;

    if (gp_parfeval(&future, b->team, &(gp_parfeval_request){ .function = b->pid, .worker = worker }, &err) !=
            GP_OK ||
        gp_future_result(future, &data, &bytes, &err) != GP_OK)
        die("pid", &err);
    memcpy(&pid, data, sizeof(pid));
    gp_future_free(future);
    return pid;
}

typedef struct timed {
    int64_t begin_ns, end_ns;
} timed;

static timed calls[CALLS_MAX]; /* calls in this round */

/* Call the workers that are not killed for ROUND_MS. Return the call count. */
static uint32_t call_untouched(bench *b)
{
    int64_t end_ns = gp_now_ns() + (int64_t)ROUND_MS * 1000000;
    uint32_t count = 0;

    while (gp_now_ns() < end_ns && count < CALLS_MAX) {
        gp_parfeval_request request = { .function = b->nothing, .worker = WORKERS - count % 2 };
        timed *t = &calls[count++];
        gp_future *future;
        gp_error err;

        t->begin_ns = gp_now_ns();
        if (gp_parfeval(&future, b->team, &request, &err) != GP_OK ||
            gp_future_result(future, NULL, NULL, &err) != GP_OK)
            die("call", &err);
        t->end_ns = gp_now_ns();
        gp_future_free(future);
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
    }
    return count;
}

typedef struct longest {
    int64_t ns, stalled_ns; /* duration without host stalls, and these stalls */
    uint32_t gap_us;
} longest;

static longest round_run(bench *b, bool kills, uint32_t gap_us)
{
    killer k = { .pids = { pid_of(b, 1), pid_of(b, 2) }, .gap_us = gap_us };
    longest worst = { .gap_us = gap_us };
    pthread_t thread;

    pid_of(b, 3);
    pid_of(b, 4);
    if (kills)
        pthread_create(&thread, NULL, killer_run, &k);
    uint32_t count = call_untouched(b);

    if (kills)
        pthread_join(thread, NULL);
    for (uint32_t i = 0; i < count; i++) {
        int64_t stalled = stalled_ns(calls[i].begin_ns, calls[i].end_ns);
        int64_t ns = calls[i].end_ns - calls[i].begin_ns - stalled;

        if (ns > worst.ns) {
            worst.ns = ns;
            worst.stalled_ns = stalled;
        }
    }
    return worst;
}

static int by_ns(const void *a, const void *b)
{
    int64_t x = ((const longest *)a)->ns, y = ((const longest *)b)->ns;

    return (x > y) - (x < y);
}

static int kills_run(bench *b, const options *o)
{
    longest *quiet = calloc(o->rounds, sizeof(*quiet)), *killed = calloc(o->rounds, sizeof(*killed));
    uint64_t state = o->seed;
    uint32_t over = 0, stalls = 0;

    if (quiet == NULL || killed == NULL)
        abort();
    meters_begin();
    for (uint32_t round = 0; round < o->rounds; round++) {
        quiet[round] = round_run(b, false, 0);
        killed[round] = round_run(b, true, draw(&state, o->gap_ms * 1000 + 1));
    }
    meters_end();
    for (uint32_t i = 0; i < meter_count; i++)
        stalls += meters[i].count;
    qsort(quiet, o->rounds, sizeof(*quiet), by_ns);
    qsort(killed, o->rounds, sizeof(*killed), by_ns);

    int64_t limit_ns = quiet[o->rounds - 1].ns + (int64_t)o->limit_ms * 1000000;

    for (uint32_t i = 0; i < o->rounds; i++) {
        over += killed[i].ns > limit_ns;
        if (killed[i].ns + killed[i].stalled_ns > limit_ns)
            printf("call took %.1f ms, including a host stall of %.1f ms; kills %.1f ms apart%s\n",
                   (double)(killed[i].ns + killed[i].stalled_ns) * 1e-6, (double)killed[i].stalled_ns * 1e-6,
                   killed[i].gap_us * 1e-3, killed[i].ns > limit_ns ? ": over the limit" : "");
    }
    printf("rounds                      %u with two kills, %u without\n", o->rounds, o->rounds);
    printf("longest call, without kills %.1f ms (median of rounds %.2f)\n",
           (double)quiet[o->rounds - 1].ns * 1e-6, (double)quiet[o->rounds / 2].ns * 1e-6);
    printf("longest call, with kills    %.1f ms (median of rounds %.2f)\n",
           (double)killed[o->rounds - 1].ns * 1e-6, (double)killed[o->rounds / 2].ns * 1e-6);
    printf("rounds over the limit       %u (limit %.1f ms)\n", over, (double)limit_ns * 1e-6);
    printf("stalls of a core over 2 ms  %u\n", stalls);
    free(quiet);
    free(killed);
    return over != 0;
}

/* ---- different durations ---- */

/* Return the completion time if each call, in order, runs on the first idle worker. */
static double list_schedule_ms(const double *durations_ms, int count)
{
    double free_ms[WORKERS] = { 0 }, last = 0;

    for (int i = 0; i < count; i++) {
        int w = 0;

        for (int k = 1; k < WORKERS; k++)
            if (free_ms[k] < free_ms[w])
                w = k;
        free_ms[w] += durations_ms[i];
        last = free_ms[w] > last ? free_ms[w] : last;
    }
    return last;
}

static void mixed_once(bench *b, uint64_t *state)
{
    static gp_future *futures[CALLS];
    static double asked_ms[CALLS], took_ms[CALLS];
    gp_error err;

    for (int i = 0; i < CALLS; i++)
        asked_ms[i] = i < LONG_CALLS ? LONG_MS : SHORT_MS;
    for (int i = CALLS - 1; i > 0; i--) {
        int other = (int)draw(state, (uint32_t)i + 1);
        double swap = asked_ms[i];

        asked_ms[i] = asked_ms[other];
        asked_ms[other] = swap;
    }
    int64_t begin_ns = gp_now_ns();

    for (int i = 0; i < CALLS; i++)
        if (gp_parfeval(&futures[i], b->team,
                        &(gp_parfeval_request){
                            .function = b->sleep_ms, .argument = &asked_ms[i], .bytes = sizeof(asked_ms[i]) },
                        &err) != GP_OK)
            die("call", &err);
    if (gp_futures_wait(futures, CALLS, GP_WAIT_ALL, -1, &err) != GP_OK)
        die("wait", &err);
    double took = (double)(gp_now_ns() - begin_ns) * 1e-6;

    for (int i = 0; i < CALLS; i++) {
        gp_future_info info;

        gp_future_get_info(futures[i], &info);
        took_ms[i] = (double)(info.ended_ns - info.started_ns) * 1e-6;
        gp_future_free(futures[i]);
    }
    double best = list_schedule_ms(took_ms, CALLS);

    printf("%.0f ms; list scheduling %.0f ms; %+.1f %%\n", took, best, (took / best - 1) * 100);
}

/* ---- needs ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Make `count` equal calls, and return the time until all have ended, in ms. */
static double calls_ms(bench *b, const gp_function *function, double ms, uint32_t count, const char *needs)
{
    static gp_future *futures[NEEDS_EMPTY];
    gp_error err;
    int64_t begin_ns = gp_now_ns();

    for (uint32_t i = 0; i < count; i++)
        if (gp_parfeval(&futures[i], b->team,
                        &(gp_parfeval_request){
                            .function = function, .argument = &ms, .bytes = sizeof(ms), .needs = needs },
                        &err) != GP_OK)
            die("call", &err);
    if (gp_futures_wait(futures, count, GP_WAIT_ALL, -1, &err) != GP_OK)
        die("wait", &err);
    double took = (double)(gp_now_ns() - begin_ns) * 1e-6;

    for (uint32_t i = 0; i < count; i++)
        gp_future_free(futures[i]);
    return took;
}

static void needs_compare(bench *b, const char *name, const gp_function *function, double ms, uint32_t count,
                          uint32_t rounds)
{
    static double without[NEEDS_ROUNDS_MAX], with[NEEDS_ROUNDS_MAX], ratio[NEEDS_ROUNDS_MAX];

    calls_ms(b, function, ms, count, NULL);
    for (uint32_t i = 0; i < rounds; i++) {
        if (i % 2 == 0)
            without[i] = calls_ms(b, function, ms, count, NULL);
        with[i] = calls_ms(b, function, ms, count, "license");
        if (i % 2 == 1)
            without[i] = calls_ms(b, function, ms, count, NULL);
        ratio[i] = with[i] / without[i];
    }
    qsort(without, rounds, sizeof(*without), by_value);
    qsort(with, rounds, sizeof(*with), by_value);
    qsort(ratio, rounds, sizeof(*ratio), by_value);
    printf("%u %s calls: without needs %.2f ms, with needs %.2f ms, ratio %.3f (quartiles %.3f, %.3f)\n",
           count, name, without[rounds / 2], with[rounds / 2], ratio[rounds / 2], ratio[rounds / 4],
           ratio[rounds * 3 / 4]);
}

int main(int argc, char **argv)
{
    options o = { .gap_ms = 20, .limit_ms = 100, .seed = 1 };
    bool mixed = argc > 1 && strcmp(argv[1], "mixed") == 0, needs = argc > 1 && strcmp(argv[1], "needs") == 0;
    bench b = { 0 };
    int code = 0;

    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    o.rounds = mixed ? 5 : needs ? 20 : 500;
    for (int i = 2; i + 1 < argc; i += 2) {
        uint32_t number = (uint32_t)strtoul(argv[i + 1], NULL, 10);

        if (strcmp(argv[i], "--rounds") == 0 && number > 0)
            o.rounds = number;
        else if (strcmp(argv[i], "--gap") == 0 && number <= 1000)
            o.gap_ms = number;
        else if (strcmp(argv[i], "--limit") == 0)
            o.limit_ms = number;
        else if (strcmp(argv[i], "--seed") == 0)
            o.seed = number;
        else
            argc = 0;
    }
    if (argc < 2 || argc % 2 != 0 || (needs && o.rounds > NEEDS_ROUNDS_MAX) ||
        (!mixed && !needs && strcmp(argv[1], "kills") != 0)) {
        fputs(usage, stderr);
        return 9;
    }
    begin(&b);
    if (needs) {
        needs_compare(&b, "1 ms", b.sleep_ms, SHORT_MS, NEEDS_CALLS, o.rounds);
        needs_compare(&b, "empty", b.nothing, 0, NEEDS_EMPTY, o.rounds);
    } else if (mixed) {
        for (uint32_t i = 0; i < o.rounds; i++) {
            uint64_t state = o.seed;

            mixed_once(&b, &state);
        }
    } else {
        code = kills_run(&b, &o);
    }
    end(&b);
    return code;
}
