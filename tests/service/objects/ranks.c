/* ranks.c: spmd functions for tests/service/test_spmd.c. */
#include <gradpool/task.h>

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void pause_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

GP_TASK gp_status empty(gp_task *task, gp_error *err)
{
    (void)task;
    (void)err;
    return GP_OK;
}

/* Return index, size, argument byte and a random number. */
GP_TASK gp_status about(gp_task *task, gp_error *err)
{
    size_t bytes;
    const unsigned char *argument = gp_task_argument(task, &bytes);
    uint64_t facts[4] = { gp_task_index(task), gp_task_size(task),
                          bytes == 0 ? 0 : (uint64_t)bytes << 8 | argument[bytes - 1], gp_task_random(task) };

    return gp_task_result(task, facts, sizeof(facts), err);
}

/* Return one megabyte filled with the index. */
GP_TASK gp_status large(gp_task *task, gp_error *err)
{
    void *data;
    gp_status status = gp_task_result_new(task, &data, 1 << 20, err);

    if (status == GP_OK)
        memset(data, (int)gp_task_index(task), 1 << 20);
    return status;
}

/* Compute the sum of indices with every communication function. */
GP_TASK gp_status sum(gp_task *task, gp_error *err)
{
    uint32_t index = gp_task_index(task), size = gp_task_size(task);
    double total = index;
    int64_t ring = index, here = index;
    gp_status status = gp_task_all_reduce(task, &total, sizeof(total), gp_combine_sum_f64, NULL, err);

    for (uint32_t step = 1; status == GP_OK && step < size; step++) {
        gp_task_message message = { .data = NULL };

        status = gp_task_send(task, index % size + 1, step, &here, sizeof(here), err);
        if (status == GP_OK)
            status = gp_task_receive(task, index == 1 ? size : index - 1, step, &message, err);
        if (status == GP_OK) {
            memcpy(&here, message.data, sizeof(here));
            ring += here;
        }
    }
    if (status == GP_OK)
        status = gp_task_barrier(task, err);
    if (status == GP_OK && ring != (int64_t)total)
        return gp_fail(err, GP_EINTERNAL, "the ring gave %lld, the reduction %g", (long long)ring, total);
    return status == GP_OK ? gp_task_result(task, &total, sizeof(total), err) : status;
}

/* Index 2 fails once the last rank has started. Index 1 waits for it in a barrier; the others
 * compute until canceled. */
GP_TASK gp_status one_fails(gp_task *task, gp_error *err)
{
    uint32_t size = gp_task_size(task);
    gp_task_message message;
    gp_status status = GP_OK;

    switch (gp_task_index(task)) {
    case 1:
        return gp_task_barrier(task, err);
    case 2:
        if (size > 2)
            status = gp_task_receive(task, size, 1, &message, err);
        return status != GP_OK ? status : gp_fail(err, GP_ENOENT, "the second rank found nothing");
    default:
        if (gp_task_index(task) == size)
            status = gp_task_send(task, 2, 1, NULL, 0, err);
        while (status == GP_OK && !gp_task_canceled(task))
            pause_ms(1);
        return status != GP_OK ? status : gp_fail(err, GP_ECANCELED, "canceled, as it should be");
    }
}

/* All ranks fail: index 3 first, the others when asked to stop. A rank that has not started would
 * be canceled instead. */
GP_TASK gp_status all_fail(gp_task *task, gp_error *err)
{
    uint32_t index = gp_task_index(task);

    gp_task_barrier(task, err); /* the failure of index 3 may interrupt it */
    while (index != 3 && !gp_task_canceled(task))
        pause_ms(1);
    return gp_fail(err, GP_EINVAL, "rank %u fails", index);
}

/* Index 1 fails; the others ignore stop requests. */
GP_TASK gp_status deaf(gp_task *task, gp_error *err)
{
    if (gp_task_index(task) == 1)
        return gp_fail(err, GP_EINVAL, "the first rank fails");
    pause_ms(1 << 30); /* about 12 days */
    return GP_OK;
}

/* Index 2 leaves index 1 waiting. The argument selects where: b(arrier), r(eceive), a(ny), c(ount
 * of barriers). */
GP_TASK gp_status mismatched(gp_task *task, gp_error *err)
{
    size_t bytes;
    const char *how = gp_task_argument(task, &bytes);
    gp_task_message message;
    gp_status status = *how == 'c' ? gp_task_barrier(task, err) : GP_OK;

    if (status != GP_OK || gp_task_index(task) != 1)
        return status;
    if (*how == 'r')
        return gp_task_receive(task, 2, 9, &message, err);
    if (*how == 'a')
        return gp_task_receive(task, GP_TASK_ANY, GP_TASK_ANY_TAG, &message, err);
    return gp_task_barrier(task, err);
}

/* Send a message that no rank receives. */
GP_TASK gp_status litter(gp_task *task, gp_error *err)
{
    return gp_task_send(task, gp_task_index(task) % gp_task_size(task) + 1, 7, "old", 4, err);
}

/* Check that no message is pending. */
GP_TASK gp_status tidy(gp_task *task, gp_error *err)
{
    bool found;
    gp_status status = gp_task_barrier(task, err);

    if (status == GP_OK)
        status = gp_task_probe(task, GP_TASK_ANY, GP_TASK_ANY_TAG, &found, NULL, err);
    if (status == GP_OK && found)
        return gp_fail(err, GP_ESTATE, "a message of an earlier block is here");
    return status;
}

/* The last index exits. The argument selects whether the others wait for it or compute. */
GP_TASK gp_status one_dies(gp_task *task, gp_error *err)
{
    size_t bytes;
    const char *how = gp_task_argument(task, &bytes);

    if (gp_task_index(task) == gp_task_size(task)) {
        pause_ms(30);
        kill(getpid(), SIGKILL);
    }
    if (*how == 'w')
        return gp_task_barrier(task, err);
    while (!gp_task_canceled(task))
        pause_ms(1);
    return GP_ECANCELED;
}

GP_TASK gp_status nap(gp_task *task, gp_error *err)
{
    while (!gp_task_canceled(task))
        pause_ms(10);
    return gp_fail(err, GP_ECANCELED, "woken");
}
