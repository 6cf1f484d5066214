/* test_history.c -- the checker itself: a history that may be, and for each check one that may not. */
#include <fcntl.h>
#include <unistd.h>

#include "tests/gp_test.h"
#include "tests/sim/history.h"

static const history_rules rules = {
    .attempts_grow = true, .gapless = true, .finish_binds = true, .good = 5
};

#define SUBMIT(s, n)                                                                                         \
    {                                                                                                        \
        .kind = HISTORY_SUBMIT, .session = s, .seq = n                                                       \
    }
#define ACCEPT(s, n, i)                                                                                      \
    {                                                                                                        \
        .kind = HISTORY_ACCEPT, .session = s, .seq = n, .id = i                                              \
    }
#define START(i, a)                                                                                          \
    {                                                                                                        \
        .kind = HISTORY_START, .id = i, .attempt = a                                                         \
    }
#define FINISH(i, a, o)                                                                                      \
    {                                                                                                        \
        .kind = HISTORY_FINISH, .id = i, .attempt = a, .outcome = o                                          \
    }
#define END(i, o)                                                                                            \
    {                                                                                                        \
        .kind = HISTORY_END, .id = i, .outcome = o                                                           \
    }
#define RESULT(s, n, i, o)                                                                                   \
    {                                                                                                        \
        .kind = HISTORY_RESULT, .session = s, .seq = n, .id = i, .outcome = o                                \
    }
#define PLAIN(k, i)                                                                                          \
    {                                                                                                        \
        .kind = HISTORY_##k, .id = i                                                                         \
    }

/* The name of the check that it fails; "" = none. */
static const char *check_of(const history_entry *entries, size_t count)
{
    static char check[32];
    history *h = history_new(&rules);

    for (size_t i = 0; i < count; i++)
        history_add(h, &entries[i]);
    history_close(h);
    snprintf(check, sizeof(check), "%s", history_check(h));
    history_free(h);
    return check;
}

#define CHECK_HISTORY(expected, ...)                                                                         \
    do {                                                                                                     \
        const history_entry entries_[] = { __VA_ARGS__ };                                                    \
        CHECK_TEXT(expected, check_of(entries_, sizeof(entries_) / sizeof(entries_[0])));                    \
    } while (0)

TEST(a_submit_that_is_repeated_begun_again_after_a_death_and_ended_may_be)
{
    CHECK_HISTORY("", SUBMIT(7, 1), SUBMIT(7, 2), ACCEPT(7, 1, 10), SUBMIT(7, 2), ACCEPT(7, 2, 11),
                  ACCEPT(7, 2, 11), START(10, 1), START(10, 2), FINISH(10, 2, 0), END(10, 5), END(10, 5),
                  RESULT(7, 1, 10, 5), PLAIN(CANCEL, 11), END(11, 7), PLAIN(FORGET, 10), PLAIN(MISSING, 10));
}

TEST(what_was_acknowledged_and_is_gone_is_lost)
{
    CHECK_HISTORY("lost", SUBMIT(7, 1), ACCEPT(7, 1, 10), PLAIN(MISSING, 10));
    CHECK_HISTORY("lost", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1), PLAIN(FORGET, 10));
    CHECK_HISTORY("never-ends", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1));
    CHECK_HISTORY("", SUBMIT(7, 1), PLAIN(MISSING, 10));
}

TEST(one_submit_is_one_thing_and_a_number_is_never_used_again)
{
    CHECK_HISTORY("two-for-one", SUBMIT(7, 1), ACCEPT(7, 1, 10), SUBMIT(7, 1), ACCEPT(7, 1, 11));
    CHECK_HISTORY("reused-id", SUBMIT(7, 1), ACCEPT(7, 1, 10), SUBMIT(8, 1), ACCEPT(8, 1, 10));
    CHECK_HISTORY("sequence", SUBMIT(7, 1), SUBMIT(7, 3));
}

TEST(nothing_is_begun_after_its_end_or_too_often)
{
    CHECK_HISTORY("runs-after-end", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1), END(10, 6), START(10, 2));
    CHECK_HISTORY("runs-again", START(10, 1), FINISH(10, 1, 0), START(10, 2));
    CHECK_HISTORY("attempts", START(10, 2), START(10, 1));
    CHECK_HISTORY("attempts", START(10, 1), START(10, 1));
    CHECK_HISTORY("too-often", { .kind = HISTORY_ACCEPT, .session = 7, .seq = 1, .id = 10, .attempt = 2 },
                  START(10, 1), START(10, 2), START(10, 3));
}

TEST(a_result_is_seen_once_and_an_end_stays)
{
    CHECK_HISTORY("result-twice", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1), FINISH(10, 1, 0),
                  RESULT(7, 1, 10, 5), RESULT(7, 1, 10, 5));
    CHECK_HISTORY("end-changed", END(10, 6), END(10, 7));
    CHECK_HISTORY("good-for-nothing", START(10, 1), END(10, 5));
    CHECK_HISTORY("finished-twice", START(10, 1), FINISH(10, 1, 0), FINISH(10, 1, 0));
    CHECK_HISTORY("not-begun", FINISH(10, 1, 0));
    CHECK_HISTORY("stray-result", SUBMIT(7, 1), ACCEPT(7, 1, 10), RESULT(7, 1, 11, 6));
}

TEST(what_a_dead_client_had_in_hand_need_not_end)
{
    CHECK_HISTORY("", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1), { .kind = HISTORY_VOID, .session = 7 });
}

TEST(thousands_are_told_apart)
{
    history *h = history_new(&rules);
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t session = 1 + i % 7, seq = i / 7 + 1;
        history_entry entries[] = { SUBMIT(session, seq), ACCEPT(session, seq, i + 1), START(i + 1, 1),
                                    FINISH(i + 1, 1, 0), RESULT(session, seq, i + 1, 5) };

        for (size_t e = 0; e < 5; e++)
            wrong += !history_add(h, &entries[e]);
    }
    CHECK_INT(0, wrong);
    CHECK(history_close(h));
    CHECK_INT(20000, history_get_counts(h).of[HISTORY_RESULT]);
    CHECK(!history_add(h, &(history_entry)RESULT(3, 2, 10, 5)));
    history_free(h);
}

TEST(lines_of_many_processes_are_read_in_the_order_of_their_times)
{
    char path[] = "/tmp/gp-history-XXXXXX";
    int fd = mkstemp(path);
    history *h = history_new(&rules);

    REQUIRE(fd >= 0);
    close(fd);
    CHECK(history_append(
        path, (history_entry){
                  .kind = HISTORY_RESULT, .at_ns = 40, .session = 7, .seq = 1, .id = 10, .outcome = 5 }));
    CHECK(
        history_append(path, (history_entry){ .kind = HISTORY_SUBMIT, .at_ns = 10, .session = 7, .seq = 1 }));
    CHECK(
        history_append(path, (history_entry){ .kind = HISTORY_START, .at_ns = 15, .id = 10, .attempt = 1 }));
    CHECK(
        history_append(path, (history_entry){ .kind = HISTORY_FINISH, .at_ns = 30, .id = 10, .attempt = 1 }));
    CHECK(history_append(
        path, (history_entry){ .kind = HISTORY_ACCEPT, .at_ns = 20, .session = 7, .seq = 1, .id = 10 }));
    CHECK(history_read(h, path) && history_close(h));
    CHECK(history_append(path, (history_entry){ .kind = HISTORY_START, .id = 10, .attempt = 2 })); /* now */
    history_clear(h);
    CHECK(!history_read(h, path));
    CHECK_TEXT("runs-after-end", history_check(h));
    history_clear(h);
    fd = open(path, O_WRONLY | O_APPEND);
    CHECK(write(fd, "nonsense\n", 9) == 9);
    close(fd);
    CHECK(!history_read(h, path));
    CHECK_CONTAINS(history_failure(h), "nonsense");
    unlink(path);
    history_free(h);
}
