/* test_submits.c: which submissions are sent, and when a repetition could create a second job. */
#include "client/pool/submits.h"
#include "tests/gp_test.h"

enum { COUNT = 6, WINDOW = 3, TIMEOUT_MS = 1000 };

static submits s;
static uint64_t jobs[COUNT];

TEARDOWN()
{
    submits_deinit(&s);
}

static void begin(void)
{
    gp_error err;

    memset(jobs, 0, sizeof(jobs));
    REQUIRE_OK(submits_init(&s, jobs, COUNT, WINDOW, TIMEOUT_MS, 0, &err), err);
}

/* Send all that fits in the window. Return the number of submissions sent. */
static uint32_t fill(int64_t now_ms)
{
    uint32_t sent = 0;
    size_t number;

    for (; submits_next(&s, &number); sent++)
        submits_sent(&s, number, now_ms);
    return sent;
}

TEST(a_reconnect_repeats_what_has_no_reply)
{
    size_t number = 0;

    begin();
    CHECK_INT(WINDOW, fill(0));
    submits_answered(&s, 1, 11, 100); /* number 1 */
    submits_answered(&s, 1, 12, 110); /* a repeated reply */
    CHECK_INT(11, jobs[1]);
    submits_again(&s);
    CHECK(!submits_late(&s, TIMEOUT_MS - 1));
    CHECK_INT(WINDOW, fill(150));
    for (uint64_t place = 0; place < WINDOW; place++)
        submits_answered(&s, place, 20 + place, 200);
    CHECK_INT(20, jobs[0]);
    CHECK_INT(11, jobs[1]);
    CHECK_INT(21, jobs[2]);
    CHECK_INT(22, jobs[3]);
    CHECK(submits_next(&s, &number));
    CHECK_INT(4, number);
    CHECK(!submits_done(&s));
}

TEST(nothing_is_sent_long_after_the_last_reply)
{
    begin();
    fill(0);
    CHECK(!submits_late(&s, TIMEOUT_MS - 1));
    CHECK(submits_late(&s, TIMEOUT_MS));
    submits_answered(&s, 0, 10, 600);
    CHECK(!submits_late(&s, 600 + TIMEOUT_MS - 1));
    CHECK(submits_late(&s, 600 + TIMEOUT_MS));
}

/* The replies waited in the socket while this process was suspended. */
TEST(replies_read_late_do_not_allow_a_repetition)
{
    const int64_t resumed_ms = 100 * TIMEOUT_MS;

    begin();
    fill(0);
    submits_answered(&s, 0, 10, resumed_ms);
    submits_answered(&s, 1, 11, resumed_ms);
    CHECK(!submits_late(&s, resumed_ms)); /* new submissions are still sent */
    CHECK_INT(2, fill(resumed_ms));
    submits_again(&s);
    CHECK(submits_late(&s, resumed_ms));
}

/* The process was suspended between two repetitions. */
TEST(a_reply_read_late_does_not_allow_further_repetitions)
{
    size_t number;

    begin();
    fill(0);
    submits_again(&s);
    REQUIRE(submits_next(&s, &number));
    submits_sent(&s, number, 10);
    submits_answered(&s, 0, 10, 100 * TIMEOUT_MS);
    CHECK(submits_late(&s, 100 * TIMEOUT_MS));
}

/* Each suspension is shorter than the time limit, and one old reply is read between two of them. */
TEST(repetitions_end_with_the_time_since_the_first_sending)
{
    begin();
    fill(0);
    submits_answered(&s, 0, 10, 900);
    fill(900);
    submits_answered(&s, 1, 11, 1800);
    CHECK(!submits_late(&s, 1800));
    submits_again(&s);
    CHECK(submits_late(&s, 1800)); /* number 2 was first sent at 0 */
}

TEST(repetitions_are_allowed_when_all_replies_of_a_suspension_were_read)
{
    const int64_t resumed_ms = 100 * TIMEOUT_MS;

    begin();
    fill(0);
    for (uint64_t place = 0; place < WINDOW; place++)
        submits_answered(&s, place, 10 + place, resumed_ms);
    fill(resumed_ms);
    submits_again(&s);
    CHECK(!submits_late(&s, resumed_ms));
    CHECK_INT(WINDOW, fill(resumed_ms));
}
