/* bench_jobs.c: measure durable job submission.
 *
 *   bench_jobs [COUNT]      COUNT: jobs in the batched rows [20000]
 *
 * Starts a pool whose jobs never start, because they wait for a sleeping job. Prints one JSON
 * object per line: single submits (each waits for a commit), batches from one client, batches from
 * four clients, the same number of fsyncs as a lower bound, and the scheduler memory per queued
 * job. Durable: after the reply, kill -9 of all processes loses nothing
 * (tests/service/test_jobs_kill.c). After a power failure this requires a disk that honors
 * fsync. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define GP_TEST_NO_MAIN
#include "tests/service/jobs_stage.h"
#include "tests/sort.h"

enum { ONE_BY_ONE = 300, CLIENTS = 4, FSYNCS = 300 };

static const char *const words[] = {
    "train", "--network", "lenet", "--data", "digits", "--epochs", "3", NULL
};

static void row(const char *name, double per_second, double p50_ms, double p99_ms)
{
    printf("{\"bench\": \"jobs\", \"case\": \"%s\", \"per_second\": %.0f", name, per_second);
    if (p50_ms > 0)
        printf(", \"p50_ms\": %.3f, \"p99_ms\": %.3f", p50_ms, p99_ms);
    printf("}\n");
}

static void bench_fsync(void)
{
    static double ms[FSYNCS];
    char page[4096] = { 1 };
    double begin = gp_now_seconds();
    int fd = open(in_root("fsync"), O_RDWR | O_CREAT, 0600);

    for (int i = 0; i < FSYNCS; i++) {
        double then = gp_now_seconds();

        if (pwrite(fd, page, sizeof(page), (off_t)i * (off_t)sizeof(page)) < 0 || fdatasync(fd) != 0)
            abort();
        ms[i] = (gp_now_seconds() - then) * 1e3;
    }
    close(fd);
    sort_doubles(ms, FSYNCS);
    row("append a page and fdatasync, by hand", FSYNCS / (gp_now_seconds() - begin), ms[FSYNCS / 2],
        ms[FSYNCS * 99 / 100]);
}

static void bench_one_by_one(void)
{
    static double ms[ONE_BY_ONE];
    double begin = gp_now_seconds();

    for (int i = 0; i < ONE_BY_ONE; i++) {
        double then = gp_now_seconds();
        uint64_t job;

        if (gp_job_submit(&job, pool, &(gp_job_request){ .words = words }, &err) != GP_OK)
            abort();
        ms[i] = (gp_now_seconds() - then) * 1e3;
    }
    sort_doubles(ms, ONE_BY_ONE);
    row("submit one by one", ONE_BY_ONE / (gp_now_seconds() - begin), ms[ONE_BY_ONE / 2],
        ms[ONE_BY_ONE * 99 / 100]);
}

static double submit_many(size_t count)
{
    gp_job_request *requests = gp_calloc(count, sizeof(*requests));
    uint64_t *jobs = gp_calloc(count, sizeof(*jobs));
    double begin;

    if (requests == NULL || jobs == NULL)
        abort();
    for (size_t i = 0; i < count; i++)
        requests[i].words = words;
    begin = gp_now_seconds();
    if (gp_job_submit_many(jobs, pool, requests, count, &err) != GP_OK) {
        printf("%s\n", err.message);
        abort();
    }
    begin = gp_now_seconds() - begin;
    gp_free(requests);
    gp_free(jobs);
    return begin;
}

/* Submit from several client processes; measures from the first submit to the last reply. */
static void bench_clients(size_t count)
{
    double begin = gp_now_seconds();
    pid_t clients[CLIENTS];

    gp_pool_close(pool);
    pool = NULL;
    fflush(stdout);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = fork();
        if (clients[i] == 0) {
            if (!open_pool())
                _exit(1);
            submit_many(count / CLIENTS);
            _exit(0);
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        waitpid(clients[i], NULL, 0);
    row("submit batched, 4 clients", (double)count / (gp_now_seconds() - begin), 0, 0);
    if (!open_pool())
        abort();
}

/* Use this program's build folder unless the environment names another. */
static void find_build(void)
{
    char path[512] = "";

    if (readlink("/proc/self/exe", path, sizeof(path) - 1) <= 0 || strstr(path, "/bench/") == NULL)
        return;
    *strstr(path, "/bench/") = '\0';
    setenv("GP_BUILD_DIR", path, 0);
}

int main(int count, char **arguments)
{
    size_t jobs = count > 1 ? strtoul(arguments[1], NULL, 10) : 20000;
    double begin;
    uint32_t canceled;

    find_build();
    stage_begin(true);
    bench_fsync();
    if (!open_pool())
        return 1;
    SUBMIT("train", "append", "/dev/null", "600000");
    SUBMIT("train", "append", "/dev/null", "600000");
    bench_one_by_one();
    long before = pools_resident_kib(scheduler_pid());

    row("submit batched, 1 client", (double)jobs / submit_many(jobs), 0, 0);
    printf("{\"bench\": \"jobs\", \"case\": \"memory of a queued job\", \"bytes\": %.0f}\n",
           (double)(pools_resident_kib(scheduler_pid()) - before) * 1024 / (double)jobs);
    bench_clients(jobs);
    begin = gp_now_seconds();
    if (gp_job_cancel(&canceled, pool, 0, &err) != GP_OK)
        abort();
    row("cancel all", canceled / (gp_now_seconds() - begin), 0, 0);
    stage_end();
    return 0;
}
