/* Test the history checker: one valid history, and an invalid one for each check. */
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

/* Return the name of the check that a history fails. "": none. */
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

TEST(repeated_and_restarted_submits_are_valid)
{
    CHECK_HISTORY("", SUBMIT(7, 1), SUBMIT(7, 2), ACCEPT(7, 1, 10), SUBMIT(7, 2), ACCEPT(7, 2, 11),
                  ACCEPT(7, 2, 11), START(10, 1), START(10, 2), FINISH(10, 2, 0), END(10, 5), END(10, 5),
                  RESULT(7, 1, 10, 5), PLAIN(CANCEL, 11), END(11, 7), PLAIN(FORGET, 10), PLAIN(MISSING, 10));
}

TEST(missing_acknowledged_jobs_are_reported_as_lost)
{
    CHECK_HISTORY("lost", SUBMIT(7, 1), ACCEPT(7, 1, 10), PLAIN(MISSING, 10));
    CHECK_HISTORY("lost", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1), PLAIN(FORGET, 10));
    CHECK_HISTORY("never-ends", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1));
    CHECK_HISTORY("", SUBMIT(7, 1), PLAIN(MISSING, 10));
}

TEST(submits_create_one_thing_and_ids_are_never_reused)
{
    CHECK_HISTORY("two-for-one", SUBMIT(7, 1), ACCEPT(7, 1, 10), SUBMIT(7, 1), ACCEPT(7, 1, 11));
    CHECK_HISTORY("reused-id", SUBMIT(7, 1), ACCEPT(7, 1, 10), SUBMIT(8, 1), ACCEPT(8, 1, 10));
    CHECK_HISTORY("sequence", SUBMIT(7, 1), SUBMIT(7, 3));
}

TEST(starts_after_the_end_or_beyond_the_limit_are_invalid)
{
    CHECK_HISTORY("runs-after-end", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1), END(10, 6), START(10, 2));
    CHECK_HISTORY("runs-again", START(10, 1), FINISH(10, 1, 0), START(10, 2));
    CHECK_HISTORY("attempts", START(10, 2), START(10, 1));
    CHECK_HISTORY("attempts", START(10, 1), START(10, 1));
    CHECK_HISTORY("too-often", { .kind = HISTORY_ACCEPT, .session = 7, .seq = 1, .id = 10, .attempt = 2 },
                  START(10, 1), START(10, 2), START(10, 3));
}

TEST(results_are_unique_and_ends_are_final)
{
    CHECK_HISTORY("result-twice", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1), FINISH(10, 1, 0),
                  RESULT(7, 1, 10, 5), RESULT(7, 1, 10, 5));
    CHECK_HISTORY("end-changed", END(10, 6), END(10, 7));
    CHECK_HISTORY("good-for-nothing", START(10, 1), END(10, 5));
    CHECK_HISTORY("finished-twice", START(10, 1), FINISH(10, 1, 0), FINISH(10, 1, 0));
    CHECK_HISTORY("not-begun", FINISH(10, 1, 0));
    CHECK_HISTORY("stray-result", SUBMIT(7, 1), ACCEPT(7, 1, 10), RESULT(7, 1, 11, 6));
}

TEST(requests_of_an_exited_client_need_not_end)
{
    CHECK_HISTORY("", SUBMIT(7, 1), ACCEPT(7, 1, 10), START(10, 1), { .kind = HISTORY_VOID, .session = 7 });
}

TEST(history_distinguishes_thousands_of_things)
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

TEST(lines_of_several_processes_are_sorted_by_time)
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
    /* appended at the current time */
    CHECK(history_append(path, (history_entry){ .kind = HISTORY_START, .id = 10, .attempt = 2 }));
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
