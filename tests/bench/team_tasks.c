#include "tests/bench/team_tasks.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>

#define GP_TEST_NO_MAIN
#include "tests/bench/bench_fn.h"
#include "tests/bench/cores.h"
#include "tests/service/pools.h"

enum { PAGE = 4096 };

struct team_bench {
    gp_pool *pool;
    gp_team *team;
    uint32_t far_worker; /* for round trips; 0: any */
    const gp_function *increment, *increment_position, *nothing, *burn, *burn_iteration, *stamp, *nap, *gate;
    char ledger_path[64];
    bench_ledger *ledger;
    uint64_t *bulk; /* payload for team_bulk */
    size_t bulk_bytes;
};

static void check(const char *what, gp_status status, const gp_error *err)
{
    if (status == GP_OK)
        return;
    fprintf(stderr, "bench_tasks: %s: %s\n", what, err->message);
    exit(1);
}

static void expect(const char *what, bool right)
{
    if (right)
        return;
    fprintf(stderr, "bench_tasks: wrong: %s\n", what);
    exit(1);
}

static void *memory_new(size_t bytes)
{
    void *memory = calloc(1, bytes);

    expect("no memory", memory != NULL);
    return memory;
}

/* ---- opening ---- */

static void build_dir_find(char *path, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", path, bytes - 1);

    expect("/proc/self/exe", length > 0);
    path[length] = '\0';
    for (int up = 0; up < 2; up++) /* .../bench/bench_tasks */
        *strrchr(path, '/') = '\0';
    setenv("GP_BUILD_DIR", path, 1);
}

static const gp_function *function_find(team_bench *bench, const char *build_dir, const char *name)
{
    const gp_function *function;
    char path[600];
    gp_error err;

    snprintf(path, sizeof(path), "%s/bench/bench_fn.so:%s", build_dir, name);
    check(name, gp_function_find(&function, bench->team, path, &err), &err);
    return function;
}

static void ledger_new(team_bench *bench)
{
    int fd;

    strcpy(bench->ledger_path, "/tmp/gp-ledger-XXXXXX");
    fd = mkstemp(bench->ledger_path);
    expect("no ledger", fd >= 0 && ftruncate(fd, sizeof(bench_ledger)) == 0);
    bench->ledger = mmap(NULL, sizeof(bench_ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    expect("no ledger", bench->ledger != MAP_FAILED);
    close(fd);
}

static gp_future *submit(team_bench *bench, const gp_function *function, const void *argument, size_t bytes,
                         uint32_t worker)
{
    gp_future *future;
    gp_error err;

    check("parfeval",
          gp_parfeval(&future, bench->team,
                      &(gp_parfeval_request){
                          .function = function, .argument = argument, .bytes = bytes, .worker = worker },
                      &err),
          &err);
    return future;
}

/* Return the word from a future and free the future. */
static uint64_t word_of(gp_future *future)
{
    const void *data;
    size_t bytes;
    uint64_t word;
    gp_error err;

    check("result", gp_future_result(future, &data, &bytes, &err), &err);
    expect("size of a result", bytes == sizeof(word));
    memcpy(&word, data, sizeof(word));
    gp_future_free(future);
    return word;
}

static uint32_t worker_on(team_bench *bench, const gp_function *core, int wanted)
{
    for (uint32_t worker = 1; worker <= gp_team_size(bench->team); worker++) {
        gp_future *future = submit(bench, core, NULL, 0, worker);
        const void *data;
        int32_t number;
        size_t bytes;
        gp_error err;

        check("core", gp_future_result(future, &data, &bytes, &err), &err);
        memcpy(&number, data, sizeof(number));
        gp_future_free(future);
        if (number == wanted)
            return worker;
    }
    return 0;
}

void team_place_new(void)
{
    char dir[512];

    build_dir_find(dir, sizeof(dir));
    pools_begin(NULL);
}

void team_place_free(void)
{
    pools_end();
}

team_bench *team_open(int workers, int client_core, int other_core)
{
    team_bench *bench = memory_new(sizeof(*bench));
    char dir[512];
    gp_error err;

    build_dir_find(dir, sizeof(dir));
    check("pool", gp_pool_open(&bench->pool, &(gp_pool_options){ .workers = (uint32_t)workers }, &err), &err);
    gp_free(pools_settled(bench->pool));
    cores_pin(client_core);
    check("team", gp_team_open(&bench->team, bench->pool, NULL, &err), &err);
    bench->increment = function_find(bench, dir, "increment");
    bench->increment_position = function_find(bench, dir, "increment_position");
    bench->nothing = function_find(bench, dir, "nothing");
    bench->burn = function_find(bench, dir, "burn");
    bench->burn_iteration = function_find(bench, dir, "burn_iteration");
    bench->stamp = function_find(bench, dir, "stamp");
    bench->nap = function_find(bench, dir, "nap");
    bench->gate = function_find(bench, dir, "gate");
    bench->far_worker = worker_on(bench, function_find(bench, dir, "core"), other_core);
    ledger_new(bench);
    return bench;
}

void team_close(team_bench *bench)
{
    gp_team_close(bench->team);
    gp_pool_close(bench->pool);
    munmap(bench->ledger, sizeof(*bench->ledger));
    unlink(bench->ledger_path);
    free(bench->bulk);
    free(bench);
}

/* ---- measurements shared with raw_zmq.h ---- */

void team_round_trips(team_bench *bench, int64_t *ns, int count, bool any)
{
    uint32_t worker = any ? 0 : bench->far_worker;

    for (int i = 0; i < count; i++) {
        int64_t began = gp_now_ns();
        uint64_t word = (uint64_t)i;

        expect("a no-op's result",
               word_of(submit(bench, bench->increment, &word, sizeof(word), worker)) == word + 1);
        ns[i] = gp_now_ns() - began;
    }
}

void team_spmd(team_bench *bench, int64_t *ns, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t began = gp_now_ns();
        gp_spmd_result *block;
        gp_error err;

        check("spmd", gp_spmd(&block, bench->team, &(gp_spmd_request){ .function = bench->nothing }, &err),
              &err);
        gp_spmd_result_free(block);
        ns[i] = gp_now_ns() - began;
    }
}

double team_futures(team_bench *bench, uint64_t count, uint64_t turns)
{
    gp_future **futures = memory_new(count * sizeof(gp_future *));
    const gp_function *function = turns == 0 ? bench->increment : bench->burn;
    uint64_t sum = 0;
    int64_t began = gp_now_ns();

    for (uint64_t i = 0; i < count; i++)
        futures[i] = submit(bench, function, turns == 0 ? &i : &turns, sizeof(i), 0);
    for (uint64_t i = 0; i < count; i++)
        sum += word_of(futures[i]);
    double seconds = (double)(gp_now_ns() - began) * 1e-9;

    expect("the futures' results", turns != 0 || sum == count * (count + 1) / 2);
    free(futures);
    return seconds;
}

double team_loop(team_bench *bench, uint64_t count, uint64_t turns)
{
    uint64_t *out = memory_new(count * sizeof(*out)), sum = 0;
    gp_parfor_request request = { .function = turns == 0 ? bench->increment_position : bench->burn_iteration,
                                  .first = 1,
                                  .last = (int64_t)count,
                                  .argument = &turns,
                                  .bytes = sizeof(turns),
                                  .output = out,
                                  .output_bytes = sizeof(*out) };
    gp_error err;

    memset(out, 0xff, count * sizeof(*out)); /* all pages exist before timing */
    int64_t began = gp_now_ns();

    check("parfor", gp_parfor(bench->team, &request, &err), &err);
    for (uint64_t i = 0; i < count; i++)
        sum += out[i];
    double seconds = (double)(gp_now_ns() - began) * 1e-9;

    expect("the loop's results", turns != 0 || sum == count * (count + 1) / 2);
    free(out);
    return seconds;
}

double team_bulk(team_bench *bench, size_t bytes)
{
    gp_spmd_request request = { .function = bench->stamp };
    gp_broadcast *shared;
    gp_spmd_result *block;
    uint64_t seen = 0;
    gp_error err;

    if (bench->bulk_bytes != bytes) {
        free(bench->bulk);
        bench->bulk = memory_new(bytes);
        memset(bench->bulk, 1, bytes);
        bench->bulk_bytes = bytes;
    }
    int64_t began = gp_now_ns();

    check("shared", gp_broadcast_new(&shared, bench->bulk, bytes, &err), &err);
    request.shared = shared;
    check("spmd", gp_spmd(&block, bench->team, &request, &err), &err);
    for (uint32_t index = 1; index <= gp_spmd_result_size(block); index++) {
        const void *data;
        size_t got;

        check("result", gp_spmd_result_get(block, index, &data, &got, &err), &err);
        expect("size of a payload", got == bytes);
        for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += PAGE)
            seen += *(const uint64_t *)(const void *)((const unsigned char *)data + at) & 0xff;
    }
    gp_spmd_result_free(block);
    gp_broadcast_free(shared);
    double seconds = (double)(gp_now_ns() - began) * 1e-9;

    expect("the stamps of a payload", seen == (bytes + PAGE - 1) / PAGE * 2 * gp_team_size(bench->team));
    return seconds;
}

/* ---- measurements with a pool only ---- */

static bench_nap nap_of(const team_bench *bench, uint32_t number, uint32_t ms)
{
    bench_nap nap = { .number = number, .ms = ms };

    strcpy(nap.ledger, bench->ledger_path);
    return nap;
}

team_kill_report team_kill(team_bench *bench, uint32_t nap_ms)
{
    bench_ledger *ledger = bench->ledger;
    gp_future *futures[BENCH_NAPS];
    team_kill_report report = { 0 };
    pid_t victim;

    memset((void *)ledger, 0, sizeof(*ledger));
    int64_t began = gp_now_ns();

    for (uint32_t i = 0; i < BENCH_NAPS; i++) {
        bench_nap nap = nap_of(bench, i, nap_ms);

        futures[i] = submit(bench, bench->nap, &nap, sizeof(nap), 0);
    }
    while (atomic_load(&ledger->ended_count) < BENCH_NAPS / 4)
        gp_sleep_ms(1);
    gp_sleep_ms(nap_ms / 2); /* in the middle of a task, not between two */
    victim = atomic_load(&ledger->pid[0]);
    expect("a worker to kill", victim > 1 && kill(victim, SIGKILL) == 0);
    for (uint32_t i = 0; i < BENCH_NAPS; i++) {
        const void *data;
        size_t bytes;
        gp_error err;

        if (gp_future_result(futures[i], &data, &bytes, &err) != GP_OK) {
            fprintf(stderr, "bench_tasks: task %u is lost: %s\n", i, err.message);
            report.lost++;
        }
        gp_future_free(futures[i]);
    }
    report.seconds = (double)(gp_now_ns() - began) * 1e-9;
    for (uint32_t i = 0; i < BENCH_NAPS; i++)
        report.twice += atomic_load(&ledger->ended[i]) > 1;
    return report;
}

/* Return the proportional set size (PSS) of a process, KiB. */
static double pss_kb(pid_t pid)
{
    char path[64], line[200];
    double sum = 0, kb;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Pss: %lf", &kb) == 1)
            sum = kb;
    if (file != NULL)
        fclose(file);
    return sum;
}

static double pool_kb(const gp_status_reply *reply)
{
    double sum = pss_kb(getpid()) + pss_kb((pid_t)reply->scheduler_pid);

    for (uint32_t i = 0; i < reply->workers_count; i++)
        sum += pss_kb((pid_t)reply->workers[i].slot.pid);
    return sum;
}

team_queue_report team_queue(team_bench *bench, uint64_t count)
{
    uint32_t size = gp_team_size(bench->team);
    gp_status_reply *reply = pools_settled(bench->pool);
    gp_future **futures = memory_new((count + size) * sizeof(gp_future *));
    bench_nap at_gate = nap_of(bench, 0, 0);
    team_queue_report report;
    uint64_t sum = 0;

    memset((void *)bench->ledger, 0, sizeof(*bench->ledger));

    /* the caller's memory, not the queue's */
    memset(futures, 1, (count + size) * sizeof(gp_future *));
    for (uint32_t i = 0; i < size; i++)
        futures[count + i] = submit(bench, bench->gate, &at_gate, sizeof(at_gate), i + 1);
    while (atomic_load(&bench->ledger->waiting) < size)
        gp_sleep_ms(1);
    double before_kb = pool_kb(reply);

    for (uint64_t i = 0; i < count; i++)
        futures[i] = submit(bench, bench->increment, &i, sizeof(i), 0);
    report.bytes_each = (pool_kb(reply) - before_kb) * 1024 / (double)count;
    int64_t began = gp_now_ns();

    atomic_store(&bench->ledger->open, 1);
    for (uint64_t i = 0; i < count; i++)
        sum += word_of(futures[i]);
    report.tasks_second = (double)count / ((double)(gp_now_ns() - began) * 1e-9);
    expect("the results of the queue", sum == count * (count + 1) / 2);
    for (uint32_t i = 0; i < size; i++) {
        expect("the gate's end", gp_future_wait(futures[count + i], 10000, NULL) == GP_OK);
        gp_future_free(futures[count + i]);
    }
    free(futures);
    gp_free(reply);
    return report;
}
