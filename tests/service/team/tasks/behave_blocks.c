/* behave_blocks.c: spmd and parfor functions, in the same object as behave_tasks.c. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gradpool/task.h>

#include "tests/service/team/tasks/behave_tasks.h"

static void pause_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* ---- spmd ---- */

/* Send each rank's number around the ring; it returns incremented once per rank. */
GP_TASK gp_status ring(gp_task *task, gp_error *err)
{
    uint32_t size = gp_task_size(task), index = gp_task_index(task);
    uint32_t next = index % size + 1, previous = (index + size - 2) % size + 1;
    int64_t number = 100 * index;
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < size && status == GP_OK; i++) {
        gp_task_message got;

        number++;
        status = gp_task_send(task, next, 7, &number, sizeof(number), err);
        if (status == GP_OK)
            status = gp_task_receive(task, previous, 7, &got, err);
        if (status == GP_OK && got.from != previous)
            status = gp_fail(err, GP_EINTERNAL, "a message of %u came from %u", previous, got.from);
        if (status == GP_OK)
            memcpy(&number, got.data, sizeof(number));
    }
    return status == GP_OK ? gp_task_result(task, &number, sizeof(number), err) : status;
}

/* Rank 1 sends tags 3, 1, 2 to rank 2, which probes for them in another order. */
GP_TASK gp_status probe_tags(gp_task *task, gp_error *err)
{
    static const uint32_t sent[] = { 3, 1, 2 };
    gp_task_message got;
    gp_status status = GP_OK;
    bool found = true;

    if (gp_task_index(task) == 1) {
        for (int i = 0; i < 3 && status == GP_OK; i++)
            status = gp_task_send(task, 2, sent[i], &sent[i], sizeof(sent[i]), err);
        return status == GP_OK ? gp_task_barrier(task, err) : status;
    }
    status = gp_task_barrier(task, err);
    for (uint32_t tag = 1; tag <= 3 && status == GP_OK && gp_task_index(task) == 2; tag++) {
        do
            status = gp_task_probe(task, 1, tag, &found, &got, err);
        while (status == GP_OK && !found && !gp_task_canceled(task));
        if (status == GP_OK)
            status = gp_task_receive(task, GP_TASK_ANY, tag, &got, err);
        if (status == GP_OK && (got.tag != tag || got.bytes != 4 || memcmp(got.data, &tag, 4) != 0))
            return gp_fail(err, GP_EINTERNAL, "asked for tag %u, got %u", tag, got.tag);
    }
    if (status == GP_OK && gp_task_index(task) == 2)
        status = gp_task_probe(task, GP_TASK_ANY, GP_TASK_ANY_TAG, &found, &got, err);
    return status == GP_OK && gp_task_index(task) == 2 && found
               ? gp_fail(err, GP_EINTERNAL, "a message is left: tag %u", got.tag)
               : status;
}

/* Test broadcast, reduce and cat; the result is the concatenation: index i contributes i bytes of
 * value i. */
GP_TASK gp_status collectives(gp_task *task, gp_error *err)
{
    uint32_t size = gp_task_size(task), index = gp_task_index(task);
    double sums[2] = { index, 1.0 };
    char word[8] = "", own[256];
    const void *all;
    size_t bytes, parts[257];
    gp_status status;

    if (index == size)
        strcpy(word, "hello");
    status = gp_task_broadcast(task, size, word, sizeof(word), err);
    if (status == GP_OK && strcmp(word, "hello") != 0)
        return gp_fail(err, GP_EINTERNAL, "the broadcast gave %.8s", word);
    if (status == GP_OK)
        status = gp_task_all_reduce(task, sums, sizeof(sums), gp_combine_sum_f64, NULL, err);
    if (status == GP_OK && (sums[0] != size * (size + 1) / 2.0 || sums[1] != size))
        return gp_fail(err, GP_EINTERNAL, "the sums are %g and %g", sums[0], sums[1]);
    memset(own, (int)index, sizeof(own));
    if (status == GP_OK)
        status = gp_task_all_gather(task, own, index, &all, &bytes, parts, err);
    if (status == GP_OK && (parts[index] - parts[index - 1] != index || parts[size] != bytes))
        return gp_fail(err, GP_EINTERNAL, "part %u has %zu bytes", index, parts[index] - parts[index - 1]);
    return status == GP_OK ? gp_task_result(task, all, bytes, err) : status;
}

/* Concatenate texts: associative, not commutative. */
static void join_text(void *into, const void *from, size_t bytes, void *context)
{
    char *text = into;

    (void)context;
    strncat(text, from, bytes - strlen(text) - 1);
}

GP_TASK gp_status join_in_order(gp_task *task, gp_error *err)
{
    char text[64] = { (char)('a' + gp_task_index(task) - 1) };
    gp_status status = gp_task_all_reduce(task, text, sizeof(text), join_text, NULL, err);

    return status == GP_OK ? gp_task_result(task, text, strlen(text), err) : status;
}

/* Call different operations on different ranks. */
GP_TASK gp_status disagree(gp_task *task, gp_error *err)
{
    double x = 1;

    return gp_task_index(task) == 1 ? gp_task_barrier(task, err)
                                    : gp_task_all_reduce(task, &x, sizeof(x), gp_combine_sum_f64, NULL, err);
}

static void end_by(const char *how)
{
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "segv") == 0)
        raise(SIGSEGV);
    if (strcmp(how, "exit3") == 0)
        _exit(3);
}

/* One rank fails or exits while the others wait for it. */
GP_TASK gp_status one_of_many(gp_task *task, gp_error *err)
{
    size_t bytes;
    const behave_one *one = gp_task_argument(task, &bytes);
    gp_task_message got;

    if (bytes != sizeof(*one))
        return gp_fail(err, GP_EINVAL, "one_of_many wants a behave_one");
    if ((int64_t)gp_task_index(task) == one->rank) {
        end_by(one->does);
        if (strcmp(one->does, "fail") == 0)
            return gp_fail(err, GP_ECORRUPT, "rank %u gives up", gp_task_index(task));
        return GP_OK;
    }
    if (strcmp(one->others, "barrier") == 0)
        return gp_task_barrier(task, err);
    if (strcmp(one->others, "receive") == 0)
        return gp_task_receive(task, (uint32_t)one->rank, 1, &got, err);
    while (!gp_task_canceled(task))
        pause_ms(1);
    return gp_fail(err, GP_ECANCELED, "rank %u was canceled", gp_task_index(task));
}

/* Rank 1 waits in a barrier that rank 3 never enters; rank 2 fails when asked to stop. Rank 3
 * returns after rank 2 has started: otherwise rank 2 would be canceled. */
GP_TASK gp_status missed_barrier(gp_task *task, gp_error *err)
{
    gp_task_message begun;

    if (gp_task_index(task) == 1)
        return gp_task_barrier(task, err);
    if (gp_task_index(task) == 3)
        return gp_task_receive(task, 2, 1, &begun, err);
    if (gp_task_send(task, 3, 1, "", 1, err) != GP_OK)
        return err->code;
    while (!gp_task_canceled(task))
        pause_ms(1);
    return gp_fail(err, GP_ECORRUPT, "rank 2 gives up");
}

/* Each rank fails with a different error: the last one first, the others when asked to stop. A rank
 * that has not started would be canceled instead. */
GP_TASK gp_status all_fail(gp_task *task, gp_error *err)
{
    gp_task_barrier(task, err); /* the failure of the last rank may interrupt it */
    while (gp_task_index(task) < gp_task_size(task) && !gp_task_canceled(task))
        pause_ms(1);
    return gp_fail(err, GP_EINVAL, "rank %u has its own reason", gp_task_index(task));
}

/* ---- parfor ---- */

GP_TASK gp_status square_slice(gp_task *task, gp_error *err)
{
    size_t in_bytes, out_bytes;
    const double *in = gp_task_input(task, &in_bytes);
    double *out = gp_task_output(task, &out_bytes);

    if (in_bytes != sizeof(*in) || out_bytes != sizeof(*out))
        return gp_fail(err, GP_EINVAL, "slices of %zu and %zu bytes", in_bytes, out_bytes);
    *out = *in * *in;
    return GP_OK;
}

/* Return the iteration. The first of every eight takes longer, so results arrive out of order. */
GP_TASK gp_status give_iteration(gp_task *task, gp_error *err)
{
    int64_t iteration = gp_task_iteration(task);

    if (gp_task_position(task) % 8 == 0)
        pause_ms(2);
    return gp_task_result(task, &iteration, sizeof(iteration), err);
}

/* Return the input number, for an endless source. */
GP_TASK gp_status give_input(gp_task *task, gp_error *err)
{
    size_t bytes;
    const int64_t *in = gp_task_input(task, &bytes);

    return bytes == sizeof(*in) ? gp_task_result(task, in, sizeof(*in), err)
                                : gp_fail(err, GP_EINVAL, "an input of %zu bytes", bytes);
}

/* Add terms whose sum depends on the order. */
GP_TASK gp_status add_term(gp_task *task, gp_error *err)
{
    size_t bytes;
    double *sum = gp_task_accumulator(task, &bytes);

    if (bytes != sizeof(*sum))
        return gp_fail(err, GP_EINVAL, "an accumulator of %zu bytes", bytes);
    *sum += 1.0 / (double)gp_task_iteration(task) + 1e-9 * gp_task_uniform(task);
    return GP_OK;
}

/* Draw two numbers that do not depend on the worker. */
GP_TASK gp_status draw(gp_task *task, gp_error *err)
{
    size_t bytes;
    double *out = gp_task_output(task, &bytes);

    if (bytes != 2 * sizeof(*out))
        return gp_fail(err, GP_EINVAL, "an output of %zu bytes", bytes);
    out[0] = gp_task_uniform(task);
    out[1] = gp_task_normal(task);
    return GP_OK;
}

/* One iteration fails or kills the worker on the first attempt; the others count themselves. */
GP_TASK gp_status one_iteration(gp_task *task, gp_error *err)
{
    size_t bytes, sum_bytes;
    const behave_iteration *one = gp_task_argument(task, &bytes);
    int64_t *sum = gp_task_accumulator(task, &sum_bytes);

    if (bytes != sizeof(*one))
        return gp_fail(err, GP_EINVAL, "one_iteration wants a behave_iteration");
    if (gp_task_iteration(task) == one->iteration && gp_task_attempt(task) == 1) {
        end_by(one->does);
        if (strcmp(one->does, "fail") == 0)
            return gp_fail(err, GP_ECORRUPT, "this one is bad");
    }
    if (sum != NULL)
        *sum += gp_task_iteration(task);
    return GP_OK;
}

/* Iterations that fail, crash and hang as the argument states. The others return the process,
 * square their number and add it to the sum. */
GP_TASK gp_status troubled(gp_task *task, gp_error *err)
{
    size_t bytes, out_bytes, sum_bytes;
    const behave_trouble *trouble = gp_task_argument(task, &bytes);
    int64_t *out = gp_task_output(task, &out_bytes), *sum = gp_task_accumulator(task, &sum_bytes);
    const behave_start start = { gp_task_iteration(task), gp_task_attempt(task) };
    int64_t place[2] = { start.iteration, getpid() };
    int fd;

    if (bytes != sizeof(*trouble))
        return gp_fail(err, GP_EINVAL, "troubled wants a behave_trouble");
    fd = trouble->path[0] == '\0' ? -1 : open(trouble->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, &start, sizeof(start)) != sizeof(start))
        return gp_fail(err, GP_EIO, "cannot write %s", trouble->path);
    if (fd >= 0)
        close(fd);
    if (out != NULL)
        *out = start.iteration * start.iteration;
    if (sum != NULL)
        *sum += start.iteration;
    gp_status status = gp_task_result(task, place, sizeof(place), err);

    if (start.iteration == trouble->dies)
        end_by("kill");
    while (start.iteration == trouble->deaf || (start.iteration == trouble->spins && !gp_task_canceled(task)))
        pause_ms(1);
    if (start.iteration == trouble->spins)
        return gp_fail(err, GP_ECANCELED, "woken");
    if (trouble->fails != 0 && start.iteration % trouble->fails == 0 &&
        (trouble->until == 0 || start.attempt < trouble->until))
        return gp_fail(err, GP_ECORRUPT, "%lld is bad", (long long)start.iteration);
    return status;
}

/* Count this iteration and return a kibibyte that starts with the iteration number. */
GP_TASK gp_status count_and_give(gp_task *task, gp_error *err)
{
    size_t bytes;
    int64_t *count = gp_task_accumulator(task, &bytes), given[128] = { gp_task_iteration(task) };

    if (bytes != sizeof(*count))
        return gp_fail(err, GP_EINVAL, "an accumulator of %zu bytes", bytes);
    *count += 1;
    return gp_task_result(task, given, sizeof(given), err);
}

/* Concatenate text in order, for the `combine` function of a parfor. */
GP_TASK void combine_text(void *into, const void *from, size_t bytes, void *context)
{
    join_text(into, from, bytes, context);
}

GP_TASK gp_status append_letter(gp_task *task, gp_error *err)
{
    size_t bytes;
    char *text = gp_task_accumulator(task, &bytes), letter[2] = "";

    (void)err;
    letter[0] = (char)('a' + gp_task_position(task) % 26);
    strncat(text, letter, bytes - strlen(text) - 1);
    return GP_OK;
}
