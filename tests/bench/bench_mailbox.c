/* bench_mailbox.c: measure the mailbox: a request and a reply between control and compute thread
 * (both sleep in between, as in prediction), on one core and on two; and the record of one step.
 *
 *   bench_mailbox [ROUNDS] */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "tests/bench/cores.h"
#include "tests/sort.h"
#include "worker/process/mailbox.h"

static int cores[2];

typedef struct compute_thread {
    gp_mailbox *mailbox;
    int core;
} compute_thread;

static void *compute(void *argument)
{
    compute_thread *self = argument;

    cores_pin(self->core);
    for (;;) {
        gp_reply reply = { .type = &gp_msg_ok_reply };
        gp_command command;

        gp_mailbox_take(self->mailbox, -1, &command);
        if (command.kind == GP_COMMAND_QUIT)
            return NULL;
        gp_mailbox_reply(self->mailbox, &reply);
    }
}

static void round_trips(const char *what, int control_core, int compute_core, int rounds)
{
    int64_t *times = calloc((size_t)rounds, sizeof(*times));
    compute_thread other = { .core = compute_core };
    pthread_t thread;
    gp_error err;

    if (times == NULL || gp_mailbox_new(&other.mailbox, &err) != GP_OK)
        exit(1);
    cores_pin(control_core);
    pthread_create(&thread, NULL, compute, &other);
    for (int i = 0; i < rounds; i++) {
        struct pollfd fd = { .fd = gp_mailbox_fd(other.mailbox), .events = POLLIN };
        int64_t began = gp_now_ns();

        gp_mailbox_post(other.mailbox, GP_COMMAND_WARM, NULL, &err);
        while (gp_mailbox_peek_reply(other.mailbox) == NULL)
            poll(&fd, 1, -1);
        gp_mailbox_calm(other.mailbox);
        gp_mailbox_drop_reply(other.mailbox);
        times[i] = gp_now_ns() - began;
    }
    gp_mailbox_post(other.mailbox, GP_COMMAND_QUIT, NULL, &err);
    pthread_join(thread, NULL);
    sort_int64s(times, (size_t)rounds);
    printf("%-28s p50 %7.2f us  p90 %7.2f us  p99 %7.2f us  (%d rounds)\n", what,
           (double)times[rounds / 2] * 1e-3, (double)times[rounds * 9 / 10] * 1e-3,
           (double)times[rounds * 99 / 100] * 1e-3, rounds);
    gp_mailbox_free(other.mailbox);
    free(times);
}

/* Measure the cost for the compute thread only: the control thread empties the ring between timed
 * intervals. */
static void records(int rounds)
{
    static gp_mailbox_event_message news;
    gp_train_record record = { .step = 1 };
    int64_t spent = 0;
    gp_mailbox *mailbox;
    gp_error err;

    if (gp_mailbox_new(&mailbox, &err) != GP_OK)
        exit(1);
    for (int i = 0; i < rounds; i += 1000) {
        int64_t began = gp_now_ns();

        for (int j = 0; j < 1000; j++)
            gp_mailbox_put_event(mailbox, &(gp_mailbox_event){ GP_MAILBOX_EVENT_STEPS, .record = record });
        spent += gp_now_ns() - began;
        while (gp_mailbox_peek_event(mailbox, &news) != GP_MAILBOX_EVENT_NONE)
            gp_mailbox_drop_event(mailbox);
    }
    printf("%-28s %.1f ns each\n", "one step's record", (double)spent / rounds);
    gp_mailbox_free(mailbox);
}

int main(int count, char **arguments)
{
    int rounds = count > 1 ? atoi(arguments[1]) : 20000;
    int found = cores_find(cores);

    if (rounds < 1000 || found < 1)
        return 2;
    round_trips("round trip on one core", cores[0], cores[0], rounds);
    if (found == 2)
        round_trips("round trip on two cores", cores[0], cores[1], rounds);
    records(rounds);
    return 0;
}
