#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/gp_test.h"
#include "worker/process/mailbox.h"

static bool awake(const gp_mailbox *mailbox)
{
    struct pollfd fd = { .fd = gp_mailbox_fd(mailbox), .events = POLLIN };

    return poll(&fd, 1, 0) == 1;
}

static void record_put(gp_mailbox *mailbox, uint64_t step)
{
    gp_train_record record = { .step = step };

    gp_mailbox_put_event(mailbox, &(gp_mailbox_event){ GP_MAILBOX_EVENT_STEPS, .record = record });
}

static void validation_put(gp_mailbox *mailbox, uint64_t step)
{
    gp_train_validation validation = { .step = step };

    gp_mailbox_put_event(mailbox,
                         &(gp_mailbox_event){ GP_MAILBOX_EVENT_VALIDATION, .validation = validation });
}

static void reply_put(gp_mailbox *mailbox, uint64_t correlation)
{
    gp_reply reply = { .type = &gp_msg_ok_reply, .envelope = { .correlation = correlation } };

    gp_mailbox_reply(mailbox, &reply);
}

TEST(a_mailbox_opens_or_fails_without_a_leak)
{
    gp_mailbox *mailbox;
    gp_error err;

    CHECK_EVERY_ALLOCATION(gp_mailbox_new(&mailbox, &err), gp_mailbox_free(mailbox));
    gp_mailbox_free(NULL);
}

TEST(commands_are_taken_in_order_and_their_number_is_bounded)
{
    gp_mailbox *mailbox;
    gp_command command;
    gp_error err;

    REQUIRE_OK(gp_mailbox_new(&mailbox, &err), err);
    for (int i = 0; i < GP_MAILBOX_COMMANDS; i++)
        CHECK_STATUS(GP_OK,
                     gp_mailbox_post(mailbox, i == 0 ? GP_COMMAND_TRAIN : GP_COMMAND_WARM, NULL, &err));
    CHECK_STATUS(GP_EBUSY, gp_mailbox_post(mailbox, GP_COMMAND_WARM, NULL, &err));
    CHECK_CONTAINS(err.message, "the queue is full (8 requests)");
    CHECK_STATUS(GP_OK, gp_mailbox_post(mailbox, GP_COMMAND_RESET, NULL, &err));
    CHECK_STATUS(GP_OK, gp_mailbox_post(mailbox, GP_COMMAND_QUIT, NULL, &err));
    gp_mailbox_take(mailbox, -1, &command);
    CHECK_INT(GP_COMMAND_TRAIN, command.kind);
    for (int i = 1; i < GP_MAILBOX_COMMANDS; i++)
        gp_mailbox_take(mailbox, -1, &command);
    gp_mailbox_take(mailbox, -1, &command);
    CHECK_INT(GP_COMMAND_RESET, command.kind);
    gp_mailbox_discard(mailbox);
    CHECK_STATUS(GP_OK, gp_mailbox_post(mailbox, GP_COMMAND_WARM, NULL, &err));
    gp_mailbox_take(mailbox, -1, &command);
    CHECK_INT(GP_COMMAND_WARM, command.kind);
    gp_mailbox_free(mailbox);
}

TEST(steps_are_passed_in_order_without_a_wakeup)
{
    static gp_mailbox_event_message event;
    gp_mailbox *mailbox;
    gp_error err;

    REQUIRE_OK(gp_mailbox_new(&mailbox, &err), err);
    CHECK_INT(GP_MAILBOX_EVENT_NONE, gp_mailbox_peek_event(mailbox, &event));
    for (uint64_t step = 1; step <= GP_RECORDS_MAX + 3; step++)
        record_put(mailbox, step);
    validation_put(mailbox, GP_RECORDS_MAX + 3);
    record_put(mailbox, GP_RECORDS_MAX + 4);
    CHECK(!awake(mailbox));
    REQUIRE(gp_mailbox_peek_event(mailbox, &event) == GP_MAILBOX_EVENT_STEPS);
    CHECK_INT(GP_RECORDS_MAX, event.steps.records_count);
    REQUIRE(gp_mailbox_peek_event(mailbox, &event) == GP_MAILBOX_EVENT_STEPS); /* peeking consumes nothing */
    CHECK_INT(1, event.steps.records[0].step);
    gp_mailbox_drop_event(mailbox);
    REQUIRE(gp_mailbox_peek_event(mailbox, &event) == GP_MAILBOX_EVENT_STEPS);
    CHECK_INT(3, event.steps.records_count);
    CHECK_INT(GP_RECORDS_MAX + 3, event.steps.records[2].step);
    gp_mailbox_drop_event(mailbox);
    REQUIRE(gp_mailbox_peek_event(mailbox, &event) == GP_MAILBOX_EVENT_VALIDATION);
    CHECK_INT(GP_RECORDS_MAX + 3, event.validation.step);
    gp_mailbox_drop_event(mailbox);
    REQUIRE(gp_mailbox_peek_event(mailbox, &event) == GP_MAILBOX_EVENT_STEPS);
    CHECK_INT(1, event.steps.records_count);
    gp_mailbox_drop_event(mailbox);
    CHECK_INT(GP_MAILBOX_EVENT_NONE, gp_mailbox_peek_event(mailbox, &event));
    gp_mailbox_free(mailbox);
}

TEST(replies_keep_their_order_among_events)
{
    static gp_mailbox_event_message event;
    const gp_reply *reply;
    gp_mailbox *mailbox;
    gp_error err;

    REQUIRE_OK(gp_mailbox_new(&mailbox, &err), err);
    record_put(mailbox, 1);
    reply_put(mailbox, 7);
    record_put(mailbox, 2);
    CHECK(awake(mailbox));
    gp_mailbox_calm(mailbox);
    CHECK(!awake(mailbox));
    CHECK(gp_mailbox_peek_reply(mailbox) == NULL);
    REQUIRE(gp_mailbox_peek_event(mailbox, &event) == GP_MAILBOX_EVENT_STEPS);
    CHECK_INT(1, event.steps.records_count);
    gp_mailbox_drop_event(mailbox);
    CHECK_INT(GP_MAILBOX_EVENT_NONE, gp_mailbox_peek_event(mailbox, &event));
    reply = gp_mailbox_peek_reply(mailbox);
    REQUIRE(reply != NULL);
    CHECK_INT(7, reply->envelope.correlation);
    gp_mailbox_drop_reply(mailbox);
    CHECK_INT(GP_MAILBOX_EVENT_STEPS, gp_mailbox_peek_event(mailbox, &event));
    CHECK_INT(2, event.steps.records[0].step);
    gp_mailbox_free(mailbox);
}

TEST(a_full_queue_drops_steps_and_counts_them_but_keeps_validations)
{
    static gp_mailbox_event_message event;
    uint64_t room = GP_MAILBOX_EVENTS - GP_MAILBOX_RESERVED;
    int kept = 0;
    gp_mailbox *mailbox;
    gp_error err;

    REQUIRE_OK(gp_mailbox_new(&mailbox, &err), err);
    for (uint64_t step = 1; step <= room + 5; step++)
        record_put(mailbox, step);
    CHECK(awake(mailbox)); /* wakes up when half full */
    for (int i = 0; i < GP_MAILBOX_RESERVED; i++)
        validation_put(mailbox, room);
    REQUIRE(gp_mailbox_peek_event(mailbox, &event) == GP_MAILBOX_EVENT_STEPS);
    CHECK_INT(5, event.steps.dropped);
    for (gp_mailbox_event_kind kind;
         (kind = gp_mailbox_peek_event(mailbox, &event)) != GP_MAILBOX_EVENT_NONE;) {
        kept += kind == GP_MAILBOX_EVENT_VALIDATION;
        gp_mailbox_drop_event(mailbox);
    }
    CHECK_INT(GP_MAILBOX_RESERVED, kept);
    gp_mailbox_begin_event(mailbox);
    record_put(mailbox, 1);
    gp_mailbox_peek_event(mailbox, &event);
    CHECK_INT(0, event.steps.dropped);
    gp_mailbox_free(mailbox);
}

/* ---- two threads ---- */

enum { STEPS = 200000, REPLIES = 5 * GP_MAILBOX_REPLIES };

static void *compute(void *argument)
{
    gp_mailbox *mailbox = argument;

    for (uint64_t step = 1; step <= STEPS; step++) {
        record_put(mailbox, step);
        if (step % 1000 == 0)
            validation_put(mailbox, step);
    }

    /* exceeds the capacity: waits for the control thread */
    for (uint64_t i = 1; i <= REPLIES; i++) {
        gp_reply reply = { .type = &gp_msg_train_done,
                           .envelope = { .correlation = i },
                           .idle = i == REPLIES };

        if (gp_blob_new(&reply.payloads[0], &i, sizeof(i), NULL) != GP_OK)
            abort();
        reply.payload_count = 1;
        gp_mailbox_reply(mailbox, &reply);
    }
    return NULL;
}

TEST(nothing_is_lost_or_out_of_order_between_two_threads)
{
    static gp_mailbox_event_message event;
    uint64_t last = 0, validations = 0, replies = 0, seen = 0, dropped = 0;
    gp_alloc_stats before = gp_alloc_get_stats();
    bool idle = false, ordered = true;
    gp_mailbox *mailbox;
    pthread_t thread;
    gp_error err;

    REQUIRE_OK(gp_mailbox_new(&mailbox, &err), err);
    REQUIRE(pthread_create(&thread, NULL, compute, mailbox) == 0);
    while (!idle) {
        struct pollfd fd = { .fd = gp_mailbox_fd(mailbox), .events = POLLIN };
        const gp_reply *reply;

        poll(&fd, 1, 20);
        gp_mailbox_calm(mailbox);
        for (gp_mailbox_event_kind kind;
             (kind = gp_mailbox_peek_event(mailbox, &event)) != GP_MAILBOX_EVENT_NONE;) {
            if (kind == GP_MAILBOX_EVENT_STEPS) {
                for (uint32_t i = 0; i < event.steps.records_count; i++) {
                    ordered = ordered && event.steps.records[i].step > last;
                    last = event.steps.records[i].step;
                }
                seen += event.steps.records_count;
                dropped = event.steps.dropped;
            } else {
                validations++;
            }
            gp_mailbox_drop_event(mailbox);
        }
        while ((reply = gp_mailbox_peek_reply(mailbox)) != NULL) {
            gp_payload payload = gp_blob_payload(reply->payloads[0]);

            ordered = ordered && reply->envelope.correlation == ++replies &&
                      memcmp(payload.data, &replies, sizeof(replies)) == 0;
            idle = reply->idle;
            gp_mailbox_drop_reply(mailbox);

            /* as ZeroMQ does, later */
            payload.release((void *)(uintptr_t)payload.data, payload.hint);
        }
    }
    pthread_join(thread, NULL);
    CHECK(ordered);
    CHECK_INT(REPLIES, replies);
    CHECK_INT(STEPS / 1000, validations);
    CHECK(seen + dropped <= STEPS && seen > 0);
    gp_mailbox_free(mailbox);
    CHECK_INT(before.live, gp_alloc_get_stats().live);
}

/* The results of a training fit after any number of notes. */
TEST(a_reply_that_may_be_lost_never_waits)
{
    const gp_reply note = { .type = &gp_msg_train_note };
    gp_mailbox *mailbox;
    gp_error err;
    int sent = 0;

    REQUIRE_OK(gp_mailbox_new(&mailbox, &err), err);
    for (int i = 0; i < 100; i++)
        sent += gp_mailbox_try_reply(mailbox, &note);
    CHECK_INT(12, sent);
    reply_put(mailbox, 1);
    for (int i = 0; i < sent; i++)
        gp_mailbox_drop_reply(mailbox);
    REQUIRE(gp_mailbox_peek_reply(mailbox) != NULL);
    CHECK_INT(1, gp_mailbox_peek_reply(mailbox)->envelope.correlation);
    CHECK(gp_mailbox_try_reply(mailbox, &note));
    gp_mailbox_free(mailbox);
}

TEST(unread_payloads_are_released_with_the_mailbox)
{
    gp_alloc_stats before = gp_alloc_get_stats();
    gp_reply reply = { .type = &gp_msg_train_done, .payload_count = 1 };
    gp_mailbox *mailbox;
    gp_error err;

    REQUIRE_OK(gp_mailbox_new(&mailbox, &err), err);
    REQUIRE_OK(gp_blob_new(&reply.payloads[0], "weights", 7, &err), err);
    gp_mailbox_reply(mailbox, &reply);
    CHECK_STATUS(GP_OK, gp_mailbox_post(mailbox, GP_COMMAND_TRAIN, NULL, &err));
    gp_mailbox_free(mailbox);
    CHECK_INT(before.live, gp_alloc_get_stats().live);
}
