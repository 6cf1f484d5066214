/* Unit tests for the event log: one line per event, for any content, rate limiting, and
 * rotation. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "common/base/text/log_line.h"
#include "common/base/text/throttle.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

enum { STORM = 20000 }; /* events logged by the rate limiting tests */

static char said[4 << 20];           /* text written to standard error */
static int before = -1, during = -1; /* original standard error; temporary file that replaces it */

/* Redirect standard error to an unnamed temporary file. */
static void listen_begin(void)
{
    char path[] = "/tmp/gp-log-XXXXXX";

    before = dup(STDERR_FILENO);
    during = mkstemp(path);
    unlink(path);
    if (before < 0 || during < 0 || dup2(during, STDERR_FILENO) < 0)
        abort();
}

/* Restore standard error and copy the redirected text to `said`. */
static void listen_end(void)
{
    dup2(before, STDERR_FILENO);
    close(before);
    ssize_t got = pread(during, said, sizeof(said) - 1, 0);

    said[got > 0 ? got : 0] = '\0';
    close(during);
}

/* Count the occurrences of a word in `said`. */
static int lines_with(const char *word)
{
    int count = 0;

    for (const char *at = said; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

/* ---- lines ---- */

/* Format a line with the single word k=value. */
static const char *value_as_line(const char *value)
{
    static gp_log_line line;

    line.bytes = 0;
    gp_log_line_put(&line, "k", value, GP_LOG_VALUE_BYTES);
    gp_log_line_end(&line);
    line.text[line.bytes] = '\0';
    return line.text;
}

TEST(values_are_quoted_and_escaped_only_if_necessary)
{
    static const struct {
        const char *value, *line;
    } cases[] = {
        { "idle", "k=idle\n" },
        { "tcp://10.0.0.5:5555", "k=tcp://10.0.0.5:5555\n" },
        { "", "k=\"\"\n" },
        { "two words", "k=\"two words\"\n" },
        { "a=b", "k=\"a=b\"\n" },
        { "say \"no\"\\", "k=\"say \\\"no\\\"\\\\\"\n" },
        { "one\ntwo\r\tthree", "k=\"one\\ntwo\\r\\tthree\"\n" },
        { "\x1b[31mred\x7f", "k=\"\\x1b[31mred\\x7f\"\n" },
        { "gr\xc3\xbc\xc3\x9f", "k=\"gr\xc3\xbc\xc3\x9f\"\n" },
        { "\xff\xc3", "k=\"\\xff\\xc3\"\n" }, /* invalid UTF-8 */
        { "\xc0\xaf", "k=\"\\xc0\\xaf\"\n" }, /* overlong form of '/' */
        { "\xc2\x85", "k=\"\\xc2\\x85\"\n" }, /* next line (C1) */
        /* line separator, right-to-left override */
        { "\xe2\x80\xa8\xe2\x80\xae", "k=\"\\xe2\\x80\\xa8\\xe2\\x80\\xae\"\n" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_TEXT(cases[i].line, value_as_line(cases[i].value));
}

TEST(any_bytes_fit_on_one_line_and_read_back_unchanged)
{
    uint64_t random = 7;
    char value[64], got[GP_LOG_LINE_BYTES];

    for (int round = 0; round < 20000 && gp_test_failures == 0; round++) {
        size_t bytes = (size_t)(round % 24);

        for (size_t i = 0; i < bytes; i++) {
            /* Knuth's linear congruential generator (MMIX). */
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            value[i] = (char)(random >> 40);
            value[i] = value[i] == '\0' ? '"' : value[i];
        }
        value[bytes] = '\0';
        gp_log_line line = { .bytes = 0 };

        gp_log_line_put(&line, "first", value, GP_LOG_VALUE_BYTES);
        gp_log_line_put(&line, "level", "warn", GP_LOG_VALUE_BYTES);
        gp_log_line_put(&line, "last", value, GP_LOG_VALUE_BYTES);
        gp_log_line_end(&line);
        CHECK(line.bytes < sizeof(line.text));
        CHECK(memchr(line.text, '\n', line.bytes) == line.text + line.bytes - 1);
        line.text[line.bytes] = '\0';
        CHECK(gp_log_line_get(line.text, "first", got, sizeof(got)));
        CHECK_TEXT(value, got);
        CHECK(gp_log_line_get(line.text, "level", got, sizeof(got)));
        CHECK_TEXT("warn", got);
        CHECK(gp_log_line_get(line.text, "last", got, sizeof(got)));
        CHECK_TEXT(value, got);
        CHECK(!gp_log_line_get(line.text, "none", got, sizeof(got)));
    }
}

TEST(a_value_cannot_imitate_another_word)
{
    char got[100];

    CHECK(gp_log_line_get(value_as_line("x\" level=error msg=\"fooled\nlevel=error"), "k", got, sizeof(got)));
    CHECK_TEXT("x\" level=error msg=\"fooled\nlevel=error", got);
    CHECK(!gp_log_line_get(value_as_line("x\" level=error"), "level", got, sizeof(got)));
    CHECK(!gp_log_line_get("a line of something else level=error\n", "level", got, sizeof(got)));
    CHECK(!gp_log_line_get("k=\"without an end", "level", got, sizeof(got)));
    CHECK(!gp_log_line_get("", "level", got, sizeof(got)));
}

TEST(long_values_are_cut_at_a_character_and_the_line_is_terminated)
{
    gp_log_line line = { .bytes = 0 };
    char large[3000], got[GP_LOG_LINE_BYTES];

    for (size_t i = 0; i + 2 < sizeof(large); i += 2)
        memcpy(large + i, "\xc3\xbc", 2);
    large[sizeof(large) - 2] = '\0';
    gp_log_line_put(&line, "a", large, 7);
    CHECK(strncmp(line.text, "a=\"\xc3\xbc\xc3\xbc\xc3\xbc...\"", line.bytes) == 0);
    /* More words than fit in the line. */
    for (int i = 0; i < 40; i++)
        gp_log_line_put(&line, "more", large, GP_LOG_VALUE_BYTES);
    gp_log_line_put(&line, "msg", large, sizeof(line.text));
    gp_log_line_end(&line);
    CHECK(line.bytes <= sizeof(line.text));
    CHECK_INT('\n', line.text[line.bytes - 1]);
    CHECK(gp_log_line_get(line.text, "more", got, sizeof(got)));
}

TEST(an_event_is_logged_as_one_terminated_line)
{
    char large[3000], value[GP_LOG_LINE_BYTES];

    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    gp_log_setup("test", GP_LOG_INFO);
    listen_begin();
    gp_log_event(GP_LOG_ERROR, "tried",
                 GP_LOG_WITH({ "lease", .number = -3 }, { "why", .text = "no reason" }), "first\nsecond\t%s",
                 large);
    gp_log(GP_LOG_DEBUG, "unwanted", "below the log level");
    listen_end();
    CHECK_INT(1, lines_with("\n"));
    CHECK(strlen(said) <= GP_LOG_LINE_BYTES);
    CHECK(strncmp(said, "time=20", 7) == 0);
    CHECK_CONTAINS(said, "Z level=error who=test pid=");
    CHECK_CONTAINS(said, " event=tried lease=-3 why=\"no reason\" msg=\"first\\nsecond\\tx");
    CHECK(gp_log_line_get(said, "msg", value, sizeof(value)));
    CHECK_CONTAINS(value, "first\nsecond\t");
}

/* ---- rate limiting ---- */

TEST(a_window_passes_the_first_events_and_reports_the_suppressed_count_when_it_ends)
{
    static gp_throttle throttle;
    const char *event = NULL;
    uint64_t count = 0;
    int passed = 0;

    for (int i = 0; i < STORM; i++)
        passed += gp_throttle_pass(&throttle, "storm", 1000 + i % 5);
    CHECK_INT(GP_THROTTLE_BURST, passed);
    /* Other events are not limited by the storm. */
    CHECK(gp_throttle_pass(&throttle, "another", 1010));
    CHECK(!gp_throttle_next_ended(&throttle, 1000 + GP_THROTTLE_WINDOW_MS - 1, false, &event, &count));
    /* The count is reported once, even though no further event follows. */
    CHECK(gp_throttle_next_ended(&throttle, 1000 + GP_THROTTLE_WINDOW_MS, false, &event, &count));
    CHECK_TEXT("storm", event);
    CHECK_INT(STORM - GP_THROTTLE_BURST, count);
    CHECK(!gp_throttle_next_ended(&throttle, 1000 + GP_THROTTLE_WINDOW_MS, false, &event, &count));
    CHECK(gp_throttle_pass(&throttle, "storm", 1001 + GP_THROTTLE_WINDOW_MS));
}

TEST(suppressed_counts_are_complete_over_many_windows)
{
    static gp_throttle throttle;
    const char *event;
    uint64_t count, reported = 0, passed = 0, all = 0;

    for (int64_t now_ms = 0; now_ms < 10 * GP_THROTTLE_WINDOW_MS; now_ms += 7) {
        for (int i = 0; i < 3; i++, all++)
            passed += gp_throttle_pass(&throttle, i == 0 ? "first" : "second", now_ms);
        while (gp_throttle_next_ended(&throttle, now_ms, false, &event, &count))
            reported += count;
    }
    /* As at process exit. */
    while (gp_throttle_next_ended(&throttle, 0, true, &event, &count))
        reported += count;
    CHECK_INT(all, passed + reported);
    CHECK(passed <= 2 * 11 * GP_THROTTLE_BURST);
    CHECK(reported > 0);
}

TEST(event_kinds_without_a_window_are_not_limited)
{
    static gp_throttle throttle;
    static char names[2 * GP_THROTTLE_KINDS][16];
    const char *event;
    uint64_t count;

    for (int i = 0; i < 2 * GP_THROTTLE_KINDS; i++) {
        snprintf(names[i], sizeof(names[i]), "kind-%d", i);
        CHECK(gp_throttle_pass(&throttle, names[i], 5));
    }
    CHECK(!gp_throttle_next_ended(&throttle, 1 << 30, true, &event, &count));
    CHECK(gp_throttle_pass(&throttle, names[0], 5 + GP_THROTTLE_WINDOW_MS));
}

TEST(a_storm_is_limited_and_other_events_are_logged)
{
    gp_log_setup("test", GP_LOG_INFO);
    listen_begin();
    for (int i = 0; i < STORM; i++) {
        gp_log(GP_LOG_WARN, "storm", "message %d", i);
        if (i % 4000 == 0)
            gp_log(GP_LOG_WARN, "calm", "something else, %d", i);
    }
    listen_end();
    CHECK(lines_with("event=storm") >= GP_THROTTLE_BURST);
    /* On a slow machine the storm may extend over two windows. */
    CHECK(lines_with("event=storm") <= 2 * GP_THROTTLE_BURST);
    CHECK_INT(STORM / 4000, lines_with("event=calm"));
}

/* ---- rotation ---- */

static off_t size_of(const char *path)
{
    struct stat facts;

    return stat(path, &facts) == 0 ? facts.st_size : -1;
}

/* Redirect standard error to a file. Return a duplicate of the original descriptor. */
static int standard_error_to(const char *path)
{
    int saved = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

    if (saved < 0 || fd < 0 || dup2(fd, STDERR_FILENO) < 0)
        abort();
    close(fd);
    return saved;
}

TEST(a_large_log_file_is_rotated_once_and_other_writers_follow)
{
    char folder[] = "/tmp/gp-log-XXXXXX", path[64], aside[72], text[2048];

    if (leftovers_make(folder) == NULL)
        abort();
    snprintf(path, sizeof(path), "%s/worker-1.log", folder);
    snprintf(aside, sizeof(aside), "%.60s.1", path);
    /* User code prints to the same file. */
    memset(text, 'u', sizeof(text));
    gp_log_setup("test", GP_LOG_INFO);
    int saved = standard_error_to(path);

    /* Standard error is another file, so this call has no effect. */
    gp_log_keep("/dev/null", 1024, true);
    gp_log_keep(path, 1024, true);
    int used = STDERR_FILENO;

    for (int round = 0; round < 2; round++) {
        if (round == 1) { /* standard error becomes another file; the log stays */
            int other = open("/dev/null", O_WRONLY | O_CLOEXEC);

            used = dup(STDERR_FILENO);
            gp_log_use_fd(used);
            REQUIRE(used > STDERR_FILENO && other >= 0 && dup2(other, STDERR_FILENO) >= 0);
            close(other);
        }
        if (write(used, text, sizeof(text)) != (ssize_t)sizeof(text))
            abort();
        /* The log checks the file size once per second. */
        gp_sleep_ms(1100);
        gp_log(GP_LOG_INFO, "round", "round %d", round);
        CHECK_INT((off_t)sizeof(text) + (round == 0 ? 0 : size_of(path)), size_of(aside));
        CHECK(size_of(path) > 0 && size_of(path) < 300);
    }
    CHECK_INT(-1, size_of(strcat(aside, ".1")));
    /* If a user removes the file, the next line creates a new one. */
    unlink(path);
    gp_sleep_ms(1100);
    gp_log(GP_LOG_INFO, "again", "there");
    CHECK(size_of(path) > 0);
    struct stat facts;

    CHECK(fstat(STDERR_FILENO, &facts) == 0 && S_ISCHR(facts.st_mode));
    gp_log_use_fd(STDERR_FILENO);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(used);
    snprintf(text, sizeof(text), "rm -r %s", folder);
    CHECK_INT(0, system(text));
}

TEST(rotated_and_current_log_files_are_read_as_one)
{
    char folder[] = "/tmp/gp-log-XXXXXX", path[64], aside[72], text[16];
    uint64_t size = 0, file = 0;

    if (leftovers_make(folder) == NULL)
        abort();
    snprintf(path, sizeof(path), "%s/worker-1.log", folder);
    snprintf(aside, sizeof(aside), "%.60s.1", path);
    CHECK_INT(0, gp_log_read(path, text, sizeof(text), 0, &size, &file));
    CHECK(size == UINT64_MAX && file == 0);

    FILE *old = fopen(aside, "w"), *present = NULL;

    REQUIRE(old != NULL && fputs("abcdef", old) >= 0 && fclose(old) == 0);
    /* The current file does not exist yet. */
    CHECK_INT(4, gp_log_read(path, text, 4, 1, &size, &file));
    CHECK(memcmp(text, "bcde", 4) == 0 && size == 6);
    present = fopen(path, "w");
    REQUIRE(present != NULL && fputs("GHI", present) >= 0 && fclose(present) == 0);
    CHECK_INT(9, gp_log_read(path, text, sizeof(text), 0, &size, &file));
    CHECK(memcmp(text, "abcdefGHI", 9) == 0 && size == 9 && file != 0);
    CHECK_INT(3, gp_log_read(path, text, 3, 5, &size, NULL));
    CHECK(memcmp(text, "fGH", 3) == 0);
    CHECK_INT(2, gp_log_read(path, text, sizeof(text), 7, &size, NULL));
    CHECK(memcmp(text, "HI", 2) == 0);
    CHECK_INT(0, gp_log_read(path, text, sizeof(text), 9, &size, NULL));
    CHECK_INT(0, gp_log_read(path, text, sizeof(text), 1 << 20, &size, NULL));
    unlink(aside);
    CHECK_INT(2, gp_log_read(path, text, sizeof(text), 1, &size, NULL));
    CHECK(size == 3);
    unlink(path);
    rmdir(folder);
}

TEST(rotated_file_of_a_long_path_is_read)
{
    char folder[] = "/tmp/gp-log-XXXXXX", path[300], aside[sizeof(path) + 2], text[20];
    uint64_t size;

    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/%0250d", folder, 0);
    snprintf(aside, sizeof(aside), "%s.1", path);

    FILE *old = fopen(aside, "w");

    REQUIRE(old != NULL && fputs("abc", old) >= 0 && fclose(old) == 0);
    CHECK_INT(3, gp_log_read(path, text, sizeof(text), 0, &size, NULL));
    unlink(aside);
    rmdir(folder);
}
