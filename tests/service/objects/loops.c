/* loops.c: loop functions for tests/service/test_parfor.c. */
#include <gradpool/task.h>

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void pause_us(int64_t us)
{
    nanosleep(&(struct timespec){ .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 }, NULL);
}

GP_TASK gp_status nothing(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}

/* Print two lines. */
GP_TASK gp_status print(gp_task *task, gp_error *err)
{
    (void)err;
    printf("%lld begins\n", (long long)gp_task_iteration(task));
    fprintf(stderr, "and ends");
    return GP_OK;
}

/* Add input and argument to give the output. */
GP_TASK gp_status add(gp_task *task, gp_error *err)
{
    size_t bytes, argument_bytes;
    const double *input = gp_task_input(task, &bytes);
    const double *argument = gp_task_argument(task, &argument_bytes);
    double *output = gp_task_output(task, &bytes);

    if (input == NULL || output == NULL || argument == NULL)
        return gp_fail(err, GP_EINVAL, "something is missing");
    *output = *input + argument[argument_bytes / sizeof(*argument) - 1];
    return GP_OK;
}

/* Return the iteration: a long result for every third one, none for every fifth. */
GP_TASK gp_status tell(gp_task *task, gp_error *err)
{
    int64_t iteration = gp_task_iteration(task);
    size_t bytes = iteration % 3 == 0 ? 3000 : sizeof(iteration);
    void *data;
    gp_status status;

    if (iteration % 5 == 0)
        return GP_OK;
    status = gp_task_result_new(task, &data, bytes, err);
    if (status == GP_OK)
        memcpy(data, &iteration, sizeof(iteration));
    return status;
}

/* Return the input after a pause in microseconds from the argument. The first iteration takes
 * longer. */
GP_TASK gp_status echo(gp_task *task, gp_error *err)
{
    size_t bytes;
    const int64_t *pause = gp_task_argument(task, &bytes);
    const void *input;

    if (pause != NULL && *pause > 0)
        pause_us(gp_task_position(task) == 0 ? 50 * *pause : *pause);
    input = gp_task_input(task, &bytes);
    return gp_task_result(task, input, bytes, err);
}

/* Add up terms whose sum depends on the order bit for bit. */
GP_TASK gp_status series(gp_task *task, gp_error *err)
{
    size_t bytes, pause_bytes;
    double *sum = gp_task_accumulator(task, &bytes);
    const int64_t *pause = gp_task_argument(task, &pause_bytes);
    double x = (double)gp_task_position(task) + 0.5;

    (void)err;
    for (size_t k = 0; k < bytes / sizeof(*sum); k++)
        sum[k] += sin(x * (double)(k + 1)) / (x + (double)k) + 1e9 * gp_task_uniform(task);
    if (pause != NULL && gp_task_position(task) % 97 == 0)
        pause_us(*pause * (gp_task_worker(task) % 3));
    return GP_OK;
}

/* Minimum and maximum with their positions; all zero bytes: no value yet. */
typedef struct extremes {
    uint64_t count;
    double least, greatest;
    uint64_t least_at, greatest_at, shape;
} extremes;

GP_TASK void extremes_combine(void *into, const void *from, size_t bytes, void *context)
{
    extremes *a = into;
    const extremes *b = from;

    if (bytes != sizeof(*a) || context == NULL)
        a->count = 1u << 31;
    if (b->count == 0)
        return;
    if (a->count == 0) {
        *a = *b;
        return;
    }
    if (b->least < a->least) {
        a->least = b->least;
        a->least_at = b->least_at;
    }
    if (b->greatest > a->greatest) {
        a->greatest = b->greatest;
        a->greatest_at = b->greatest_at;
    }
    a->count += b->count;

    /* not associative: reveals the shape of the reduction tree */
    a->shape = a->shape * 1000003 ^ b->shape;
}

GP_TASK gp_status extremes_of(gp_task *task, gp_error *err)
{
    size_t bytes;
    extremes one = { .count = 1 }, *all = gp_task_accumulator(task, &bytes);
    int64_t context = 1;

    if (bytes != sizeof(one))
        return gp_fail(err, GP_EINVAL, "%zu bytes", bytes);
    one.least_at = one.greatest_at = one.shape = gp_task_position(task);
    one.least = one.greatest = gp_task_uniform(task);
    extremes_combine(all, &one, bytes, &context);
    return GP_OK;
}

GP_TASK gp_status fails_at(gp_task *task, gp_error *err)
{
    size_t bytes;
    const int64_t *at = gp_task_argument(task, &bytes);

    if (gp_task_iteration(task) >= *at)
        return gp_fail(err, GP_ENOENT, "%lld is too much", (long long)gp_task_iteration(task));
    pause_us(20);
    return GP_OK;
}

/* Count in the output for 10 ms. The argument is the iteration in which the worker exits on the
 * first attempt. */
GP_TASK gp_status dies_at(gp_task *task, gp_error *err)
{
    size_t bytes;
    const int64_t *at = gp_task_argument(task, &bytes);
    uint64_t *output = gp_task_output(task, &bytes);

    (void)err;
    if (gp_task_iteration(task) == at[0] && (at[1] != 0 || gp_task_attempt(task) == 1)) {
        pause_us(2000);
        kill(getpid(), SIGKILL);
    }
    pause_us(5000);
    *output = gp_task_position(task) + 1000 * gp_task_attempt(task);
    return GP_OK;
}

GP_TASK gp_status slow(gp_task *task, gp_error *err)
{
    (void)err;
    while (!gp_task_canceled(task))
        pause_us(10000);
    return GP_OK;
}

GP_TASK gp_status draws(gp_task *task, gp_error *err)
{
    size_t bytes;
    uint64_t *output = gp_task_output(task, &bytes);

    (void)err;
    for (size_t k = 0; k < bytes / sizeof(*output); k++)
        output[k] = gp_task_random(task);
    return GP_OK;
}

/* Return one megabyte filled with the iteration number. */
GP_TASK gp_status big(gp_task *task, gp_error *err)
{
    void *data;
    gp_status status = gp_task_result_new(task, &data, 1 << 20, err);

    if (status == GP_OK)
        memset(data, (int)gp_task_iteration(task), 1 << 20);
    return status;
}

/* Return and add the iteration. The first attempt fails for multiples of three. With the argument
 * "wait", iteration 2 waits until it is canceled. */
GP_TASK gp_status thirds(gp_task *task, gp_error *err)
{
    size_t bytes, sum_bytes;
    const char *argument = gp_task_argument(task, &bytes);
    int64_t iteration = gp_task_iteration(task), *sum = gp_task_accumulator(task, &sum_bytes);

    if (iteration % 3 == 0 && gp_task_attempt(task) == 1)
        return gp_fail(err, GP_EINVAL, "%lld is bad in attempt 1", (long long)iteration);
    while (argument != NULL && iteration == 2)
        if (gp_task_canceled(task))
            return gp_fail(err, GP_ECANCELED, "canceled");
    if (sum != NULL)
        *sum += iteration;
    return gp_task_result(task, &iteration, sizeof(iteration), err);
}

/* Create a file. Return whether it did not exist before. */
static bool create(const char *path, const char *suffix)
{
    char name[256];
    int file;

    snprintf(name, sizeof(name), "%s%s", path, suffix);
    file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0)
        close(file);
    return file >= 0;
}

/* Return the iteration. The argument is a path. The first iteration of worker 1 creates PATH.begun
 * and waits until PATH exists. Those of other workers create PATH.joined and wait for PATH.begun:
 * otherwise one worker could run all iterations before worker 1 starts one. */
GP_TASK gp_status hold_first(gp_task *task, gp_error *err)
{
    size_t bytes;
    const char *path = gp_task_argument(task, &bytes);
    const bool first = gp_task_worker(task) == 1;
    int64_t iteration = gp_task_iteration(task);
    char awaited[256];

    if (create(path, first ? ".begun" : ".joined") || !first) {
        snprintf(awaited, sizeof(awaited), "%s%s", path, first ? "" : ".begun");
        while (access(awaited, F_OK) != 0) {
            if (gp_task_canceled(task))
                return gp_fail(err, GP_ECANCELED, "canceled while it waited for %s", awaited);
            pause_us(1000);
        }
    }
    return gp_task_result(task, &iteration, sizeof(iteration), err);
}
