/* behave_tasks.c: tasks that behave like all kinds of user code: correctly, slowly, and badly. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <gradpool/task.h>

#include "tests/service/team/tasks/behave_tasks.h"
#include "tests/sim/history.h"

static void sleep_ms(int64_t ms)
{
    struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

/* Copy the argument as text, at most bytes - 1 bytes. */
static const char *text_argument(gp_task *task, char *text, size_t bytes)
{
    size_t length;
    const void *data = gp_task_argument(task, &length);

    length = length < bytes - 1 ? length : bytes - 1;
    if (length > 0)
        memcpy(text, data, length);
    text[length] = '\0';
    return text;
}

static int64_t number_argument(gp_task *task)
{
    size_t bytes;
    const int64_t *data = gp_task_argument(task, &bytes);

    return bytes < sizeof(*data) ? 0 : *data;
}

/* ---- successful tasks ---- */

GP_TASK gp_status nothing(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}

GP_TASK gp_status echo(gp_task *task, gp_error *err)
{
    size_t bytes;
    const void *data = gp_task_argument(task, &bytes);

    return gp_task_result(task, data, bytes, err);
}

GP_TASK gp_status square(gp_task *task, gp_error *err)
{
    int64_t n = number_argument(task), result = n * n;

    return gp_task_result(task, &result, sizeof(result), err);
}

/* Return the offset of the argument from a multiple of 16 bytes. */
GP_TASK gp_status argument_offset(gp_task *task, gp_error *err)
{
    size_t bytes;
    const int64_t offset = (int64_t)((uintptr_t)gp_task_argument(task, &bytes) % 16);

    return gp_task_result(task, &offset, sizeof(offset), err);
}

/* Return the requested number of bytes; byte i is i modulo 251. */
GP_TASK gp_status make_bytes(gp_task *task, gp_error *err)
{
    size_t bytes = (size_t)number_argument(task);
    unsigned char *data;
    gp_status status = gp_task_result_new(task, (void **)&data, bytes, err);

    for (size_t i = 0; status == GP_OK && i < bytes; i++)
        data[i] = (unsigned char)(i % 251);
    return status;
}

/* Return the worker and process that run this task. */
GP_TASK gp_status where(gp_task *task, gp_error *err)
{
    behave_place place = { .pid = getpid(),
                           .worker = gp_task_worker(task),
                           .index = gp_task_index(task),
                           .size = gp_task_size(task),
                           .attempt = gp_task_attempt(task) };

    return gp_task_result(task, &place, sizeof(place), err);
}

/* ---- slow tasks ---- */

/* Sleep for the given milliseconds or until canceled; logs the start. */
GP_TASK gp_status nap(gp_task *task, gp_error *err)
{
    gp_task_log(task, "begun");
    for (int64_t left = number_argument(task); left > 0; left--) {
        if (gp_task_canceled(task))
            return gp_fail(err, GP_ECANCELED, "woken with %lld ms left", (long long)left);
        sleep_ms(1);
    }
    return where(task, err);
}

/* Wait until the file in the argument exists or the call is canceled; logs the start. */
GP_TASK gp_status hold(gp_task *task, gp_error *err)
{
    char path[256];

    text_argument(task, path, sizeof(path));
    gp_task_log(task, "begun");
    while (access(path, F_OK) != 0) {
        if (gp_task_canceled(task))
            return gp_fail(err, GP_ECANCELED, "canceled, and there is no %s", path);
        sleep_ms(1);
    }
    return where(task, err);
}

/* Iteration `number` creates the file in the argument, and iteration 1 waits for it. All return the
 * iteration. */
GP_TASK gp_status hold_first(gp_task *task, gp_error *err)
{
    const int64_t iteration = gp_task_iteration(task);
    size_t bytes;
    const behave_tally *argument = gp_task_argument(task, &bytes);

    if (iteration == argument->number)
        close(open(argument->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    while (iteration == 1 && access(argument->path, F_OK) != 0 && !gp_task_canceled(task))
        sleep_ms(1);
    return gp_task_result(task, &iteration, sizeof(iteration), err);
}

/* Run forever on the first attempt, unless canceled; later attempts return at once. */
GP_TASK gp_status hold_once(gp_task *task, gp_error *err)
{
    if (gp_task_attempt(task) > 1)
        return where(task, err);
    gp_task_log(task, "begun");
    while (!gp_task_canceled(task))
        sleep_ms(1);
    return gp_fail(err, GP_ECANCELED, "canceled in the first attempt");
}

/* Sleep for the given milliseconds and ignore cancel requests. */
GP_TASK gp_status stubborn(gp_task *task, gp_error *err)
{
    gp_task_log(task, "begun");
    sleep_ms(number_argument(task));
    return where(task, err);
}

/* Append a line to the file at start and end, with a pause between: the lines show how often each
 * call ran. */
GP_TASK gp_status tally(gp_task *task, gp_error *err)
{
    size_t bytes;
    const behave_tally *argument = gp_task_argument(task, &bytes);
    char line[32];
    int file, length;

    if (bytes != sizeof(*argument))
        return gp_fail(err, GP_EINVAL, "tally wants a behave_tally");
    file = open(argument->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return gp_fail_errno(err, GP_EIO, "%s", argument->path);
    length = snprintf(line, sizeof(line), "begin %lld\n", (long long)argument->number);
    length = (int)write(file, line, (size_t)length);
    sleep_ms(argument->ms);
    length = snprintf(line, sizeof(line), "end %lld\n", (long long)argument->number);
    length = (int)write(file, line, (size_t)length);
    close(file);
    (void)length;
    return gp_task_result(task, &argument->number, sizeof(argument->number), err);
}

/* Like tally, with history entries (tests/sim/history.h) for start and success, and the pid of the
 * worker. */
GP_TASK gp_status recorded(gp_task *task, gp_error *err)
{
    size_t bytes;
    const behave_tally *argument = gp_task_argument(task, &bytes);
    history_entry entry = { .kind = HISTORY_START, .attempt = gp_task_attempt(task) };

    if (bytes != sizeof(*argument))
        return gp_fail(err, GP_EINVAL, "recorded wants a behave_tally");
    entry.id = (uint64_t)argument->number;
    if (!history_append(argument->path, entry))
        return gp_fail_errno(err, GP_EIO, "%s", argument->path);
    sleep_ms(argument->ms);
    entry.kind = HISTORY_FINISH;
    if (!history_append(argument->path, entry))
        return gp_fail_errno(err, GP_EIO, "%s", argument->path);
    return gp_task_result(task, &(behave_recorded){ argument->number, getpid() }, sizeof(behave_recorded),
                          err);
}

/* Hold a lock on the file PATH.NUMBER for the given time and return the number. GP_ESTATE: another
 * call with that number runs at the same time. */
GP_TASK gp_status alone(gp_task *task, gp_error *err)
{
    size_t bytes;
    const behave_tally *argument = gp_task_argument(task, &bytes);
    char path[160];
    int file;

    if (bytes != sizeof(*argument))
        return gp_fail(err, GP_EINVAL, "alone wants a behave_tally");
    snprintf(path, sizeof(path), "%s.%lld", argument->path, (long long)argument->number);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return gp_fail_errno(err, GP_EIO, "%s", path);
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        close(file);
        return gp_fail(err, GP_ESTATE, "two calls with %s run at the same time", path);
    }
    sleep_ms(argument->ms);
    close(file);
    return gp_task_result(task, &argument->number, sizeof(argument->number), err);
}

/* ---- failing tasks ---- */

GP_TASK gp_status fail(gp_task *task, gp_error *err)
{
    char text[256];

    return gp_fail(err, GP_EINVAL, "refused: %s", text_argument(task, text, sizeof(text)));
}

/* Fail before the attempt with that number. */
GP_TASK gp_status fail_until(gp_task *task, gp_error *err)
{
    int64_t attempt = gp_task_attempt(task);

    if (attempt < number_argument(task))
        return gp_fail(err, GP_EIO, "attempt %lld", (long long)attempt);
    return gp_task_result(task, &attempt, sizeof(attempt), err);
}

/* Corrupt heap metadata until the allocator or the processor detects it. */
static void spoil_heap(void)
{
    for (size_t round = 0; round < 64; round++) {
        char *block = malloc(24 + 16 * round), *next = malloc(24 + 16 * round);

        if (block != NULL)
            for (volatile char *at = block - 16; at < block + 96 + 16 * round; at++)
                *at = (char)0xa5;
        free(next);
        free(block);
    }
    abort();
}

static int overflow(volatile char *above, int depth)
{
    volatile char here[4096];

    here[0] = (char)(*above + depth);
    return depth == INT_MAX ? 0 : overflow(here, depth + 1) + here[0];
}

/* Terminate by that signal; sanitizers would replace it with an exit. */
__attribute__((no_sanitize("undefined"), no_sanitize("address"))) static void die_by(const char *how)
{
    volatile char zero = 0;
    volatile int *nowhere = NULL;

    signal(SIGSEGV, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
    if (strcmp(how, "segv") == 0)
        *nowhere = 1;
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "exit3") == 0)
        _exit(3);
    if (strcmp(how, "exit0") == 0)
        exit(0);
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "fpe") == 0)
        raise(SIGFPE);
    if (strcmp(how, "heap") == 0)
        spoil_heap();
    if (strcmp(how, "stack") == 0)
        overflow(&zero, 0);
}

/* Terminate in the way named by the argument; an unknown name is an ordinary error. */
GP_TASK gp_status die(gp_task *task, gp_error *err)
{
    char how[64];

    die_by(text_argument(task, how, sizeof(how)));
    return gp_fail(err, GP_EINVAL, "unknown way to terminate: %s", how);
}

/* Kill the worker on each attempt before the one with that number. */
GP_TASK gp_status die_until(gp_task *task, gp_error *err)
{
    int64_t attempt = gp_task_attempt(task);

    if (attempt < number_argument(task))
        die_by("kill");
    return gp_task_result(task, &attempt, sizeof(attempt), err);
}

/* Fork a child that keeps all descriptors open while the folder in the argument exists, then
 * exit. */
GP_TASK gp_status fork_and_die(gp_task *task, gp_error *err)
{
    char folder[256];
    pid_t child;

    text_argument(task, folder, sizeof(folder));
    child = fork();
    if (child == 0) {
        while (access(folder, F_OK) == 0)
            sleep_ms(10);
        _exit(0);
    }
    die_by("kill");
    return gp_fail(err, GP_EINTERNAL, "alive");
}

/* Close all descriptors except the first three. */
GP_TASK gp_status close_all(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    return GP_OK;
}

/* Allocate a large result and exit before it is sent. */
GP_TASK gp_status die_with_a_result(gp_task *task, gp_error *err)
{
    void *data;
    gp_status status = gp_task_result_new(task, &data, (size_t)number_argument(task), err);

    if (status != GP_OK)
        return status;
    memset(data, 1, (size_t)number_argument(task));
    raise(SIGKILL);
    return GP_OK;
}

/* Allocate memory until it runs out, with a limit of 256 MiB above the current usage. */
GP_TASK gp_status take_all_memory(gp_task *task, gp_error *err)
{
    struct rlimit before, limit;
    size_t taken = 0, pages = 0;
    void **blocks = NULL;
    FILE *statm = fopen("/proc/self/statm", "re");

    (void)task;
    if (statm == NULL || fscanf(statm, "%zu", &pages) != 1 || getrlimit(RLIMIT_AS, &before) != 0)
        return gp_fail(err, GP_EIO, "no /proc/self/statm");
    fclose(statm);
    limit = before;
    limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + ((size_t)256 << 20);
    setrlimit(RLIMIT_AS, &limit);
    for (;;) {
        void **block = malloc(16 << 20);

        if (block == NULL)
            break;
        *block = blocks;
        blocks = block;
        taken += 16;
    }
    while (blocks != NULL) {
        void **next = *blocks;

        free(blocks);
        blocks = next;
    }
    setrlimit(RLIMIT_AS, &before);
    return gp_fail(err, GP_ENOMEM, "no memory after %zu MiB", taken);
}

/* ---- values, files, constants, queues, log lines ---- */

GP_TASK gp_status get_value(gp_task *task, gp_error *err)
{
    char name[200];
    size_t bytes;
    const void *data = gp_task_get(task, text_argument(task, name, sizeof(name)), &bytes);

    if (data == NULL)
        return gp_fail(err, GP_ENOENT, "this worker has no value %s", name);
    return gp_task_result(task, data, bytes, err);
}

/* Store a value; the argument is "name=text". */
GP_TASK gp_status put_value(gp_task *task, gp_error *err)
{
    char text[256], *equals;

    text_argument(task, text, sizeof(text));
    equals = strchr(text, '=');
    if (equals == NULL)
        return gp_fail(err, GP_EINVAL, "no = in %s", text);
    *equals = '\0';
    return gp_task_put(task, text, equals + 1, strlen(equals + 1), err);
}

/* Return the sum of the int64 values scattered under that name, and multiply them by 2 in place. */
GP_TASK gp_status sum_and_double(gp_task *task, gp_error *err)
{
    char name[200];
    size_t bytes;
    const int64_t *values = gp_task_get(task, text_argument(task, name, sizeof(name)), &bytes);
    int64_t sum = 0, doubled[1024];
    gp_status status;

    if (values == NULL || bytes > sizeof(doubled))
        return gp_fail(err, GP_ENOENT, "this worker has no small value %s", name);
    for (size_t i = 0; i < bytes / sizeof(*values); i++) {
        sum += values[i];
        doubled[i] = 2 * values[i];
    }
    status = gp_task_put(task, name, doubled, bytes, err);
    return status == GP_OK ? gp_task_result(task, &sum, sizeof(sum), err) : status;
}

/* Add 1 to the float64 tensor with that name, and return the number of rows. */
GP_TASK gp_status raise_tensor(gp_task *task, gp_error *err)
{
    char name[200];
    gp_tensor tensor;
    double raised[1024];
    size_t count = 1;
    gp_status status =
        gp_task_get_tensor(task, text_argument(task, name, sizeof(name)), GP_F64, &tensor, err);

    if (status != GP_OK)
        return status;
    for (uint32_t d = 0; d < tensor.shape.rank; d++)
        count *= (size_t)tensor.shape.dim[d];
    for (size_t i = 0; i < count && i < 1024; i++)
        raised[i] = ((const double *)tensor.data)[i] + 1;
    tensor.data = raised;
    status = gp_task_put_tensor(task, name, &tensor, err);
    return status == GP_OK ? gp_task_result(task, &tensor.shape.dim[0], sizeof(int64_t), err) : status;
}

/* Return the contents of the attached file "data". */
GP_TASK gp_status read_file(gp_task *task, gp_error *err)
{
    const char *path = gp_task_file(task, "data");
    char content[4096];
    size_t bytes;
    FILE *file = path == NULL ? NULL : fopen(path, "re");

    if (file == NULL)
        return gp_fail(err, GP_ENOENT, "no attached file data (%s)", path == NULL ? "no path" : path);
    bytes = fread(content, 1, sizeof(content), file);
    fclose(file);
    return gp_task_result(task, content, bytes, err);
}

static int64_t builds;

static gp_status build_counter(gp_task *task, void **out, gp_error *err)
{
    (void)task;
    (void)err;
    builds++;
    *out = &builds;
    return GP_OK;
}

/* Return the number of times that this process built the constant: 1. */
GP_TASK gp_status count_builds(gp_task *task, gp_error *err)
{
    void *value;
    gp_status status = gp_task_cached(task, "counter", build_counter, NULL, &value, err);

    return status == GP_OK ? gp_task_result(task, value, sizeof(int64_t), err) : status;
}

/* Send 1, 2, ... to the queue "numbers". */
GP_TASK gp_status queue_numbers(gp_task *task, gp_error *err)
{
    gp_status status = GP_OK;

    for (int64_t i = 1; i <= number_argument(task) && status == GP_OK; i++)
        status = gp_task_queue(task, "numbers", &i, sizeof(i), err);
    return status;
}

/* Send items too large for the ring, each filled with the item number. */
GP_TASK gp_status queue_large(gp_task *task, gp_error *err)
{
    static unsigned char item[BEHAVE_LARGE];
    gp_status status = GP_OK;

    for (int64_t i = 1; i <= number_argument(task) && status == GP_OK; i++) {
        memset(item, (int)(i % 251), sizeof(item));
        status = gp_task_queue(task, "large", item, sizeof(item), err);
    }
    return status;
}

GP_TASK gp_status say(gp_task *task, gp_error *err)
{
    char text[256];

    (void)err;
    gp_task_log(task, "said: %s", text_argument(task, text, sizeof(text)));
    return GP_OK;
}
