/* bench_fn.c: task functions for bench_tasks. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <gradpool/task.h>

#include "tests/bench/bench_fn.h"
#include "tests/bench/burn.h"

enum { PAGE = 4096 };

static gp_status argument_check(size_t bytes, size_t expected, gp_error *err)
{
    return bytes == expected
               ? GP_OK
               : gp_fail(err, GP_EINVAL, "the argument has %zu bytes; expected %zu", bytes, expected);
}

/* Return the argument plus 1. */
GP_TASK gp_status increment(gp_task *task, gp_error *err)
{
    size_t bytes;
    const uint64_t *argument = gp_task_argument(task, &bytes);
    gp_status status = argument_check(bytes, sizeof(*argument), err);

    if (status != GP_OK)
        return status;
    uint64_t next = *argument + 1;

    return gp_task_result(task, &next, sizeof(next), err);
}

/* The same as an iteration. */
GP_TASK gp_status increment_position(gp_task *task, gp_error *err)
{
    size_t bytes;
    uint64_t *out = gp_task_output(task, &bytes);

    *out = gp_task_position(task) + 1;
    (void)err;
    return GP_OK;
}

GP_TASK gp_status nothing(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}

/* Burn for the given turns and return the last word. */
GP_TASK gp_status burn(gp_task *task, gp_error *err)
{
    size_t bytes;
    const uint64_t *turns = gp_task_argument(task, &bytes);
    gp_status status = argument_check(bytes, sizeof(*turns), err);

    if (status != GP_OK)
        return status;
    uint64_t word = bench_burn(*turns);

    return gp_task_result(task, &word, sizeof(word), err);
}

/* The same as an iteration; the turns are the loop's argument. */
GP_TASK gp_status burn_iteration(gp_task *task, gp_error *err)
{
    size_t bytes;
    const uint64_t *turns = gp_task_argument(task, &bytes);
    uint64_t *out = gp_task_output(task, &bytes);

    *out = bench_burn(*turns);
    (void)err;
    return GP_OK;
}

/* Return the argument with a stamp on each page. */
GP_TASK gp_status stamp(gp_task *task, gp_error *err)
{
    size_t bytes;
    const void *in = gp_task_argument(task, &bytes);
    void *out;
    gp_status status = gp_task_result_new(task, &out, bytes, err);

    if (status != GP_OK)
        return status;
    memcpy(out, in, bytes);
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += PAGE)
        ++*(uint64_t *)(void *)((unsigned char *)out + at);
    return GP_OK;
}

/* Return the core that runs this worker. */
GP_TASK gp_status core(gp_task *task, gp_error *err)
{
    int32_t number = sched_getcpu();

    return gp_task_result(task, &number, sizeof(number), err);
}

static gp_status ledger_map(bench_ledger **out, const char *path, gp_error *err)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return gp_fail(err, GP_EIO, "%s: %m", path);
    *out = mmap(NULL, sizeof(**out), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return *out == MAP_FAILED ? gp_fail(err, GP_EIO, "%s cannot be mapped: %m", path) : GP_OK;
}

/* Sleep for the given time and record start and end in the ledger. */
GP_TASK gp_status nap(gp_task *task, gp_error *err)
{
    size_t bytes;
    const bench_nap *argument = gp_task_argument(task, &bytes);
    bench_ledger *ledger;
    gp_status status = argument_check(bytes, sizeof(*argument), err);

    if (status == GP_OK)
        status = ledger_map(&ledger, argument->ledger, err);
    if (status != GP_OK)
        return status;
    atomic_store(&ledger->pid[gp_task_index(task) - 1], getpid());
    atomic_fetch_add(&ledger->begun[argument->number], 1);
    nanosleep(&(struct timespec){ .tv_nsec = argument->ms * 1000000L }, NULL);
    atomic_fetch_add(&ledger->ended[argument->number], 1);
    atomic_fetch_add(&ledger->ended_count, 1);
    munmap(ledger, sizeof(*ledger));
    return GP_OK;
}

/* Occupy a worker until the ledger's gate opens or the call is canceled. */
GP_TASK gp_status gate(gp_task *task, gp_error *err)
{
    size_t bytes;
    const bench_nap *argument = gp_task_argument(task, &bytes);
    bench_ledger *ledger;
    gp_status status = argument_check(bytes, sizeof(*argument), err);

    if (status == GP_OK)
        status = ledger_map(&ledger, argument->ledger, err);
    if (status != GP_OK)
        return status;
    atomic_fetch_add(&ledger->waiting, 1);
    while (!atomic_load(&ledger->open) && !gp_task_canceled(task))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    munmap(ledger, sizeof(*ledger));
    return GP_OK;
}
