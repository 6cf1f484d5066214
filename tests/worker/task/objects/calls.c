/* calls.c: tasks for tests/worker/task/test_tasks.c; each one exercises one feature of task.h. */
#include <gradpool/task.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

GP_TASK extern int some_data;
int some_data = 7;

GP_TASK gp_status empty(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}

GP_TASK gp_status square(gp_task *task, gp_error *err)
{
    size_t bytes;
    const double *x = gp_task_argument(task, &bytes);

    if (bytes != sizeof(*x))
        return gp_fail(err, GP_EINVAL, "the argument has %zu bytes; expected one double", bytes);
    return gp_task_result(task, &(double){ x[0] * x[0] }, sizeof(double), err);
}

GP_TASK gp_status echo(gp_task *task, gp_error *err)
{
    size_t bytes;
    const void *data = gp_task_argument(task, &bytes);

    return gp_task_result(task, data, bytes, err);
}

/* Take SIGTERM from the worker, as some libraries do. */
GP_TASK gp_status take_sigterm(gp_task *task, gp_error *err)
{
    (void)task;
    return signal(SIGTERM, SIG_IGN) != SIG_ERR ? GP_OK : gp_fail(err, GP_EIO, "cannot ignore SIGTERM");
}

/* Return as many bytes as the argument states; byte i has the value i. */
GP_TASK gp_status grow(gp_task *task, gp_error *err)
{
    size_t bytes;
    const size_t *wanted = gp_task_argument(task, &bytes);
    void *room;
    gp_status status = gp_task_result_new(task, &room, *wanted, err);

    if (status != GP_OK)
        return status;
    for (size_t i = 0; i < *wanted; i++)
        ((unsigned char *)room)[i] = (unsigned char)i;
    return GP_OK;
}

/* Allocate a large result, a larger one, then a small one: the last one counts. */
GP_TASK gp_status twice(gp_task *task, gp_error *err)
{
    void *room;

    if (gp_task_result_new(task, &room, 1 << 20, err) != GP_OK ||
        gp_task_result_new(task, &room, 1 << 21, err) != GP_OK)
        return err->code;
    return gp_task_result(task, "last", 4, err);
}

GP_TASK gp_status fail(gp_task *task, gp_error *err)
{
    size_t bytes;
    const char *text = gp_task_argument(task, &bytes);

    gp_task_result(task, "unseen", 6, err);
    return bytes == 0 ? GP_ENODEV : gp_fail(err, GP_ENOENT, "there is no %.*s", (int)bytes, text);
}

GP_TASK gp_status strange(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return (gp_status)4711;
}

GP_TASK gp_status crash(gp_task *task, gp_error *err)
{
    volatile int *volatile nowhere = NULL; /* hides the null pointer from the compiler */

    (void)task;
    (void)err;
    *nowhere = 1;
    return GP_OK;
}

GP_TASK gp_status count_calls(gp_task *task, gp_error *err)
{
    static int calls;

    calls++;
    return gp_task_result(task, &calls, sizeof(calls), err);
}

GP_TASK gp_status until_canceled(gp_task *task, gp_error *err)
{
    gp_task_log(task, "waiting");
    while (!gp_task_canceled(task))
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    return gp_fail(err, GP_ECANCELED, "as was asked");
}

GP_TASK gp_status about(gp_task *task, gp_error *err)
{
    gp_task_device device;
    char text[200];

    gp_task_get_device(task, &device);
    snprintf(text, sizeof(text), "%u of %u, worker %u, attempt %u, %s %u %s, %d cores", gp_task_index(task),
             gp_task_size(task), gp_task_worker(task), gp_task_attempt(task), device.gpu ? "gpu" : "cpu",
             device.ordinal, device.uuid, device.cores > 0);
    return gp_task_result(task, text, strlen(text), err);
}

GP_TASK gp_status remember(gp_task *task, gp_error *err)
{
    size_t bytes;
    const void *data = gp_task_argument(task, &bytes);

    return gp_task_put(task, "kept", data, bytes, err);
}

GP_TASK gp_status recall(gp_task *task, gp_error *err)
{
    size_t bytes;
    const void *data = gp_task_get(task, "kept", &bytes);

    if (data == NULL)
        return gp_fail(err, GP_ENOENT, "nothing is kept");
    return gp_task_result(task, data, bytes, err);
}

static int built, dropped_file = -1;

static gp_status build(gp_task *task, void **out, gp_error *err)
{
    (void)task;
    if (built++ == 0)
        return gp_fail(err, GP_EBUSY, "not the first time");
    *out = malloc(16);
    return GP_OK;
}

static void drop(void *value)
{
    free(value);
    if (write(dropped_file, "dropped", 7) != 7)
        abort();
}

/* Create a constant. The argument is a descriptor that is written to when the constant is
 * dropped. */
GP_TASK gp_status constant(gp_task *task, gp_error *err)
{
    size_t bytes;
    const int *fd = gp_task_argument(task, &bytes);
    void *value, *again;

    if (bytes == sizeof(*fd))
        dropped_file = *fd;
    if (gp_task_cached(task, "c", build, drop, &value, err) != GP_OK ||
        gp_task_cached(task, "c", build, drop, &again, err) != GP_OK)
        return err->code;
    return value == again ? gp_task_result(task, &built, sizeof(built), err)
                          : gp_fail(err, GP_EINTERNAL, "two of them");
}

GP_TASK gp_status read_file(gp_task *task, gp_error *err)
{
    const char *path = gp_task_file(task, "the file");
    char text[100];
    size_t bytes;
    FILE *file;

    if (path == NULL)
        return gp_fail(err, GP_ENOENT, "no file is attached");
    file = fopen(path, "r");
    if (file == NULL)
        return gp_fail_errno(err, GP_EIO, "%s", path);
    bytes = fread(text, 1, sizeof(text), file);
    fclose(file);
    return gp_task_result(task, text, bytes, err);
}

GP_TASK gp_status draw(gp_task *task, gp_error *err)
{
    struct {
        uint64_t bits[4];
        double uniform, normal[2];
    } drawn;

    for (int i = 0; i < 4; i++)
        drawn.bits[i] = gp_task_random(task);
    drawn.uniform = gp_task_uniform(task);
    drawn.normal[0] = gp_task_normal(task);
    drawn.normal[1] = gp_task_normal(task);
    return gp_task_result(task, &drawn, sizeof(drawn), err);
}

/* Send a log line, a small item, a large item and another log line. */
GP_TASK gp_status tell(gp_task *task, gp_error *err)
{
    static char large[100000];

    memset(large, 'x', sizeof(large));
    gp_task_log(task, "one\ntwo %d\n", 3);
    if (gp_task_queue(task, "small", "item", 4, err) != GP_OK ||
        gp_task_queue(task, "large", large, sizeof(large), err) != GP_OK)
        return err->code;
    gp_task_log(task, "end");
    return gp_task_queue(task, "", "x", 1, err);
}

/* Send a large item without `err` while no descriptor can be opened. Return 1 if that fails. */
GP_TASK gp_status tell_without_err(gp_task *task, gp_error *err)
{
    static char large[100000];
    struct rlimit before, none;
    char failed;

    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    failed = gp_task_queue(task, "large", large, sizeof(large), NULL) != GP_OK;
    setrlimit(RLIMIT_NOFILE, &before);
    return gp_task_result(task, &failed, sizeof(failed), err);
}

/* Send more than a ring holds. The argument selects lines or items, and "for ever" runs until it
 * fails. */
GP_TASK gp_status flood(gp_task *task, gp_error *err)
{
    size_t bytes;
    const char *what = gp_task_argument(task, &bytes);
    static char item[1000];

    for (int i = 0; i < 2000 || bytes == 8; i++)
        if (bytes == 3)
            gp_task_log(task, "line %d %900s", i, "");
        else if (gp_task_queue(task, "q", item, sizeof(item), err) != GP_OK)
            return err->code;
    return gp_task_result(task, what, bytes, err);
}

/* Be busy for a number of milliseconds and ignore cancel requests. */
GP_TASK gp_status work(gp_task *task, gp_error *err)
{
    size_t bytes;
    const uint32_t *ms = gp_task_argument(task, &bytes);
    struct timespec begun, now;

    (void)err;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < *ms);
    return GP_OK;
}
