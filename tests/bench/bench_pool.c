/* bench_pool.c: measure pool startup and worker memory.
 *
 *   bench_pool [DATA]      DATA: data source for the memory figure [digits:2000]
 *
 * Prints median and best time over 20 rounds: start a pool until both workers are idle (a new
 * scheduler each time), attach to it, lease both workers with attach and release. Then prints a
 * worker's private memory while it trains LeNet, without the data. */
#include <inttypes.h>

#define GP_TEST_NO_MAIN
#include "common/data/store/store.h"
#include "tests/service/pools.h"
#include "tests/sort.h"

enum { ROUNDS = 20 };

static void report(const char *what, double *ms, int count)
{
    sort_doubles(ms, (size_t)count);
    printf("%-44s median %7.2f ms   best %7.2f ms   worst %7.2f ms\n", what, ms[count / 2], ms[0],
           ms[count - 1]);
}

static void die(const char *what, const gp_error *err)
{
    fprintf(stderr, "bench_pool: %s: %s\n", what, err->message);
    exit(1);
}

static double since_ms(int64_t begin_ns)
{
    return (double)(gp_now_ns() - begin_ns) * 1e-6;
}

static void wait_idle(gp_pool *pool)
{
    for (uint32_t idle = 0; idle != 2;) {
        gp_status_reply *reply;
        gp_error err;

        if (pool_status(pool, &reply, &err) != GP_OK)
            die("status", &err);
        idle = 0;
        for (uint32_t i = 0; i < reply->workers_count; i++)
            idle += reply->workers[i].state == GP_WORKER_IDLE;
        gp_free(reply);
    }
}

static void measure_starts(void)
{
    double up[ROUNDS], attach[ROUNDS], lease[ROUNDS];
    gp_error err;

    for (int i = 0; i < ROUNDS; i++) {
        gp_pool *pool, *again;

        pools_begin(NULL);
        int64_t begin_ns = gp_now_ns();

        if (gp_pool_open(&pool, &(gp_pool_options){ .workers = 2 }, &err) != GP_OK)
            die("up", &err);
        wait_idle(pool);
        up[i] = since_ms(begin_ns);
        begin_ns = gp_now_ns();
        if (gp_pool_open(&again, NULL, &err) != GP_OK)
            die("attach", &err);
        attach[i] = since_ms(begin_ns);
        begin_ns = gp_now_ns();
        if (pool_lease(again, &(gp_lease_request){ 0 }, "bench", NULL, &err) != GP_OK)
            die("lease", &err);
        pool_release(again);
        lease[i] = since_ms(begin_ns);
        gp_pool_close(again);
        gp_pool_close(pool);
        pools_end();
    }
    report("cold start, two workers idle", up, ROUNDS);
    report("attach", attach, ROUNDS);
    report("lease of both, attach, release", lease, ROUNDS);
}

/* Add up the Private_ lines, KiB. */
static long private_kb(pid_t pid)
{
    char path[64], line[200];
    long sum = 0, kb;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Private_Clean: %ld", &kb) == 1 || sscanf(line, "Private_Dirty: %ld", &kb) == 1)
            sum += kb;
    if (file != NULL)
        fclose(file);
    return sum;
}

typedef struct memory_watch {
    pid_t worker;
    long private_kb;
} memory_watch;

static void watch_step(void *context, const gp_train_step *step)
{
    memory_watch *watch = context;

    if (step->rank == 0 && step->step == 20)
        watch->private_kb = private_kb(watch->worker);
}

static void measure_memory(const char *data)
{
    static const char *const options[] = { "max-epochs=1", "mini-batch-size=64", NULL };
    memory_watch watch = { 0 };
    gp_train_request request = { .network = "lenet",
                                 .data = data,
                                 .validation_data = "none",
                                 .options = options,
                                 .events = { .step = watch_step, .context = &watch } };
    gp_training *training;
    gp_store *store;
    gp_pool *pool;
    gp_error err;

    if (gp_store_open(&store, data, GP_DATA_TRAIN, &err) != GP_OK)
        die(data, &err);
    const gp_store_info *info = gp_store_get_info(store);
    double data_mb = (double)info->count * (double)(info->sample_bytes + sizeof(int32_t)) / 1048576;

    gp_store_close(store);
    pools_begin(NULL);
    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = 2 }, &err) != GP_OK)
        die("up", &err);
    gp_status_reply *reply = pools_settled(pool);

    watch.worker = (pid_t)reply->workers[0].slot.pid;
    gp_free(reply);
    double idle_mb = (double)private_kb(watch.worker) / 1024;

    if (gp_train(&training, pool, &request, &err) != GP_OK)
        die("train", &err);
    printf("private memory of a worker: idle %.1f MiB; training LeNet %.1f MiB, of it data %.1f MiB, beyond "
           "it %.1f MiB\n",
           idle_mb, (double)watch.private_kb / 1024, data_mb, (double)watch.private_kb / 1024 - data_mb);
    gp_training_free(training);
    gp_pool_close(pool);
    pools_end();
}

int main(int argc, char **argv)
{
    measure_starts();
    measure_memory(argc > 1 ? argv[1] : "digits:2000");
    return 0;
}
