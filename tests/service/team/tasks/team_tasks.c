/* team_tasks.c: tasks for the team tests, well and badly behaved. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gradpool/task.h>

static void nap(double ms)
{
    struct timespec left = { .tv_sec = (long)(ms / 1e3), .tv_nsec = (long)(ms * 1e6) % 1000000000 };

    while (nanosleep(&left, &left) != 0)
        ;
}

GP_TASK gp_status nothing(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}

/* Return the argument. */
GP_TASK gp_status echo(gp_task *task, gp_error *err)
{
    size_t bytes;
    const void *data = gp_task_argument(task, &bytes);

    return gp_task_result(task, data, bytes, err);
}

/* Result: the wait statuses of two programs that send a signal to themselves. */
GP_TASK gp_status signal_programs(gp_task *task, gp_error *err)
{
    const int status[2] = { system("kill -TERM $$; exit 7"), system("kill -PIPE $$; exit 7") };

    return gp_task_result(task, status, sizeof(status), err);
}

/* Result: the wait status of a forked child that sends a signal to itself. */
GP_TASK gp_status signal_child(gp_task *task, gp_error *err)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        raise(SIGTERM);
        _exit(7);
    }
    waitpid(child, &status, 0);
    return gp_task_result(task, &status, sizeof(status), err);
}

GP_TASK gp_status square(gp_task *task, gp_error *err)
{
    size_t bytes;
    const double *x = gp_task_argument(task, &bytes);
    double y;

    if (bytes != sizeof(*x))
        return gp_fail(err, GP_EINVAL, "the argument has %zu bytes; expected one double", bytes);
    y = x[0] * x[0];
    return gp_task_result(task, &y, sizeof(y), err);
}

/* Sleep for the given milliseconds (double) or until canceled. */
GP_TASK gp_status sleep_ms(gp_task *task, gp_error *err)
{
    size_t bytes;
    const double *ms = gp_task_argument(task, &bytes);

    for (double left = *ms; left > 0; left -= 1) {
        nap(left < 1 ? left : 1);
        if (gp_task_canceled(task))
            return gp_fail(err, GP_ECANCELED, "canceled with %g ms left", left);
    }
    return GP_OK;
}

/* Append a byte to the file in the argument: the file size is the number of starts. */
static gp_status begun_write(const char *path, gp_error *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    bool reported = fd >= 0 && write(fd, "b", 1) == 1;

    if (fd >= 0)
        close(fd);
    return reported ? GP_OK : gp_fail(err, GP_EIO, "cannot write %s", path);
}

/* Wait until PATH, the argument, exists or the call is canceled. Reports the start in
 * PATH.begun. */
GP_TASK gp_status hold(gp_task *task, gp_error *err)
{
    size_t bytes;
    const char *path = gp_task_argument(task, &bytes);
    char begun[256];
    gp_status status;

    snprintf(begun, sizeof(begun), "%s.begun", path);
    status = begun_write(begun, err);
    while (status == GP_OK && access(path, F_OK) != 0) {
        nap(1);
        if (gp_task_canceled(task))
            status = gp_fail(err, GP_ECANCELED, "canceled, and there is no %s", path);
    }
    return status;
}

/* Wait until PATH, the argument, exists, and ignore cancel requests. GP_ESTATE: another call with
 * that path runs at the same time. */
GP_TASK gp_status hold_alone(gp_task *task, gp_error *err)
{
    const uint32_t number = 7;
    size_t bytes;
    const char *path = gp_task_argument(task, &bytes);
    char lock[256];

    snprintf(lock, sizeof(lock), "%s.lock", path);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
        return gp_fail(err, GP_ESTATE, "two calls run with %s at the same time", path);
    while (access(path, F_OK) != 0)
        nap(1);
    close(fd);
    return gp_task_result(task, &number, sizeof(number), err);
}

/* Sleep for days and ignore cancel requests; reports the start in the file in the argument. */
GP_TASK gp_status sleep_deaf(gp_task *task, gp_error *err)
{
    size_t bytes;
    gp_status status = begun_write(gp_task_argument(task, &bytes), err);

    if (status == GP_OK)
        nap(1e9);
    return status;
}

/* Compute for the given microseconds. */
GP_TASK gp_status spin_us(gp_task *task, gp_error *err)
{
    size_t bytes;
    const double *us = gp_task_argument(task, &bytes);
    struct timespec begin, now;

    (void)err;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((double)(now.tv_sec - begin.tv_sec) * 1e6 + (double)(now.tv_nsec - begin.tv_nsec) * 1e-3 < *us);
    return GP_OK;
}

typedef struct mark {
    uint32_t number;
    double ms;
    char path[200], gate[200];
} mark;

/* Sleep, wait for `gate` if set, then append the number to a file: repeated runs appear twice. */
GP_TASK gp_status mark_file(gp_task *task, gp_error *err)
{
    size_t bytes;
    const mark *m = gp_task_argument(task, &bytes);
    int fd;

    nap(m->ms);
    while (m->gate[0] != '\0' && access(m->gate, F_OK) != 0)
        nap(1);
    fd = open(m->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &m->number, sizeof(m->number)) != sizeof(m->number))
        return gp_fail(err, GP_EIO, "cannot mark %s", m->path);
    close(fd);
    return gp_task_result(task, &m->number, sizeof(m->number), err);
}

/* Terminate as the argument states: "segv", "exit", "abort", "kill", "heap"; with the prefix "once
 * ", only on the first attempt. */
GP_TASK gp_status die(gp_task *task, gp_error *err)
{
    size_t bytes;
    const char *how = gp_task_argument(task, &bytes);
    uint32_t attempt = gp_task_attempt(task);

    if (strncmp(how, "once ", 5) == 0) {
        if (attempt > 1)
            return gp_task_result(task, &attempt, sizeof(attempt), err);
        how += 5;
    }
    if (strcmp(how, "segv") == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers would turn SIGSEGV into an exit */
        raise(SIGSEGV);
    }
    if (strcmp(how, "exit") == 0)
        _exit(3);
    else if (strcmp(how, "abort") == 0)
        abort();
    else if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(how, "heap") == 0) {
        volatile char *block = malloc(24);

        for (int i = -64; i < 256; i++)
            block[i] = 0x5a;
        free((void *)block);
        for (int i = 0; i < 1000; i++)
            free(malloc((size_t)i * 7 + 1));
        abort();
    }
    return gp_fail(err, GP_EINVAL, "unknown way to terminate: '%s'", how);
}

/* Fail until the attempt given by the argument (uint32_t). */
GP_TASK gp_status fail_until(gp_task *task, gp_error *err)
{
    size_t bytes;
    const uint32_t *good = gp_task_argument(task, &bytes);
    uint32_t attempt = gp_task_attempt(task);

    if (attempt < *good)
        return gp_fail(err, GP_EIO, "attempt %u fails", attempt);
    return gp_task_result(task, &attempt, sizeof(attempt), err);
}

GP_TASK gp_status who(gp_task *task, gp_error *err)
{
    uint32_t worker = gp_task_worker(task);

    return gp_task_result(task, &worker, sizeof(worker), err);
}

GP_TASK gp_status pid(gp_task *task, gp_error *err)
{
    pid_t own = getpid();

    return gp_task_result(task, &own, sizeof(own), err);
}

/* Return a result of the given size (uint64_t); byte i has the value i. */
GP_TASK gp_status large(gp_task *task, gp_error *err)
{
    size_t bytes;
    const uint64_t *count = gp_task_argument(task, &bytes);
    void *data;
    gp_status status = gp_task_result_new(task, &data, *count, err);

    for (uint64_t i = 0; status == GP_OK && i < *count; i += 4096)
        ((unsigned char *)data)[i] = (unsigned char)(i >> 12);
    return status;
}

/* Return the sum of the argument bytes. */
GP_TASK gp_status sum(gp_task *task, gp_error *err)
{
    size_t bytes;
    const unsigned char *data = gp_task_argument(task, &bytes);
    uint64_t total = 0;

    for (size_t i = 0; i < bytes; i++)
        total += data[i];
    return gp_task_result(task, &total, sizeof(total), err);
}

/* Send the numbers 1 .. n (uint32_t) to the queue "numbers". */
GP_TASK gp_status count_into_queue(gp_task *task, gp_error *err)
{
    size_t bytes;
    const uint32_t *n = gp_task_argument(task, &bytes);

    for (uint32_t i = 1; i <= *n; i++) {
        gp_status status = gp_task_queue(task, "numbers", &i, sizeof(i), err);

        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

/* Return the value stored under the name in the argument. */
GP_TASK gp_status value_of(gp_task *task, gp_error *err)
{
    size_t bytes, value_bytes;
    const char *name = gp_task_argument(task, &bytes);
    const void *value = gp_task_get(task, name, &value_bytes);

    if (value == NULL)
        return gp_fail(err, GP_ENOENT, "no value '%s'", name);
    return gp_task_result(task, value, value_bytes, err);
}

GP_TASK gp_status say(gp_task *task, gp_error *err)
{
    size_t bytes;
    const char *text = gp_task_argument(task, &bytes);

    (void)err;
    gp_task_log(task, "%s", text);
    return GP_OK;
}
