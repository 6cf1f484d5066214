/* test_log.c -- one event a line, and no more lines of a kind than a disk can take. */
#include <fcntl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/gp_test.h"

enum { STORM = 20000 };

static char said[4 << 20];
static int before = -1, during = -1;

static void listen_begin(void)
{
    char path[] = "/tmp/gp-log-XXXXXX";

    gp_log_setup("test", GP_LOG_INFO);
    before = dup(STDERR_FILENO);
    during = mkstemp(path);
    unlink(path);
    if (before < 0 || during < 0 || dup2(during, STDERR_FILENO) < 0)
        abort();
}

static void listen_end(void)
{
    dup2(before, STDERR_FILENO);
    close(before);
    ssize_t got = pread(during, said, sizeof(said) - 1, 0);

    said[got > 0 ? got : 0] = '\0';
    close(during);
}

static int lines_with(const char *word)
{
    int count = 0;

    for (const char *at = said; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

/* One call: where two have the same words, compilers differ about whether these are one text. */
static void storm(int i)
{
    gp_log(GP_LOG_WARN, "storm: message %d", i);
}

TEST(a_storm_of_one_kind_is_counted_and_the_others_are_heard)
{
    unsigned left_out = 0;

    listen_begin();
    int64_t began_ms = gp_now_ms();

    for (int i = 0; i < STORM; i++) {
        storm(i);
        if (i % 4000 == 0)
            gp_log(GP_LOG_WARN, "something else, %d", i);
    }
    int64_t seconds = (gp_now_ms() - began_ms) / 1000 + 1;

    gp_sleep_ms(1100);
    storm(STORM);
    listen_end();
    int heard = lines_with("storm: message");

    for (const char *at = said; (at = strstr(at, " lines like the next were left out")) != NULL; at++) {
        const char *number = at;

        while (number > said && number[-1] >= '0' && number[-1] <= '9')
            number--;
        left_out += (unsigned)atoi(number);
    }
    CHECK(heard >= GP_LOG_BURST && heard <= (seconds + 1) * GP_LOG_BURST + 1);
    CHECK_INT(STORM + 1, heard + (int)left_out);
    CHECK_INT(STORM / 4000, lines_with("something else"));
}

TEST(a_line_is_one_line_and_has_an_end)
{
    char large[3000];

    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    listen_begin();
    gp_log(GP_LOG_ERROR, "first\nsecond\t%s", large);
    gp_log(GP_LOG_DEBUG, "nobody wants to know");
    listen_end();
    CHECK_INT(1, lines_with("\n"));
    CHECK(strlen(said) <= 1024);
    CHECK_CONTAINS(said, "Z error test[");
    CHECK_CONTAINS(said, "first second");
    CHECK_INT(0, lines_with("nobody"));
}
