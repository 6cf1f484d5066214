/* test_lines.c: the splitter of byte streams into lines. */
#include "common/base/text/lines.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"
#include "tests/gp_test.h"

/* Lines received, each followed by a newline. */
static char got[1 << 20];
static size_t got_bytes, longest;
static int count;

static void take(void *context, const char *text, size_t bytes)
{
    CHECK(context == got);
    REQUIRE(got_bytes + bytes < sizeof(got));
    memcpy(got + got_bytes, text, bytes);
    got_bytes += bytes;
    got[got_bytes++] = '\n';
    longest = bytes > longest ? bytes : longest;
    count++;
}

static void begin(gp_lines *lines)
{
    *lines = (gp_lines){ 0 };
    got_bytes = longest = 0;
    count = 0;
}

static void feed(gp_lines *lines, const char *text, size_t bytes)
{
    gp_lines_feed(lines, text, bytes, take, got);
}

static void check_got(const char *text, size_t bytes)
{
    CHECK_INT(bytes, got_bytes);
    CHECK(bytes == got_bytes && memcmp(text, got, bytes) == 0);
}

TEST(lines_are_whole_and_an_incomplete_one_waits)
{
    gp_lines lines;

    begin(&lines);
    feed(&lines, "one\n\ntw", 7);
    check_got("one\n\n", 5);
    feed(&lines, "o", 1);
    CHECK_INT(2, count);
    feed(&lines, "\nthree", 6);
    check_got("one\n\ntwo\n", 9);
    gp_lines_flush(&lines, take, got);
    check_got("one\n\ntwo\nthree\n", 15);
    gp_lines_flush(&lines, take, got);
    CHECK_INT(4, count);
}

TEST(bytes_are_not_interpreted)
{
    static const char bytes[] = "a\0b\r\n\xff\xc3\x28\xed\xa0\x80\n";
    gp_lines lines;

    begin(&lines);
    feed(&lines, bytes, sizeof(bytes) - 1);
    CHECK_INT(2, count);
    check_got(bytes, sizeof(bytes) - 1);
}

/* A line of 4096 bytes is one line; one more byte is a second line. */
TEST(long_lines_are_split_without_an_empty_rest)
{
    static char text[3 * GP_LINE_BYTES_MAX];
    gp_lines lines;

    memset(text, 'x', sizeof(text));
    for (size_t length = GP_LINE_BYTES_MAX - 1; length <= 2 * GP_LINE_BYTES_MAX + 1; length++) {
        text[length] = '\n';
        for (int pieces = 0; pieces < 2; pieces++) {
            begin(&lines);
            for (size_t i = 0; pieces == 1 && i < length; i += 1000) /* 1,000 bytes at a time */
                feed(&lines, text + i, length - i < 1000 ? length - i : 1000);
            feed(&lines, pieces == 1 ? "\n" : text, pieces == 1 ? 1 : length + 1);
            CHECK_INT((length + GP_LINE_BYTES_MAX - 1) / GP_LINE_BYTES_MAX, count);
            CHECK_INT(length, got_bytes - (size_t)count);
            CHECK(longest <= GP_LINE_BYTES_MAX);
        }
        text[length] = 'x';
        if (length == GP_LINE_BYTES_MAX + 1)
            length = 2 * GP_LINE_BYTES_MAX - 2;
    }
}

TEST(every_division_of_a_stream_gives_the_same_lines)
{
    enum { BYTES = 60000 };
    static char text[BYTES + 1], whole[sizeof(got)];
    gp_lines lines;
    uint32_t random[4];
    size_t whole_bytes;

    for (uint32_t i = 0; i < BYTES; i++) { /* lines of 20 bytes on average, and one of 10,000 */
        gp_rng_draw(random, 7, 0, 0, 0, i);
        text[i] = random[0] % 20 == 0 && (i < 20000 || i > 30000) ? '\n' : (char)random[1];
    }
    text[BYTES] = '\n';
    begin(&lines);
    feed(&lines, text, sizeof(text));
    CHECK(count > 1000);
    memcpy(whole, got, got_bytes);
    whole_bytes = got_bytes;
    for (uint32_t seed = 1; seed <= 50; seed++) {
        uint32_t draws = 0;

        begin(&lines);
        for (size_t at = 0, bytes; at < sizeof(text); at += bytes) {
            gp_rng_draw(random, seed, 1, 0, 0, draws++);
            bytes = random[0] % (random[1] % 4 == 0 ? 9000 : 30);
            bytes = bytes < sizeof(text) - at ? bytes : sizeof(text) - at;
            feed(&lines, text + at, bytes);
        }
        check_got(whole, whole_bytes);
    }
}
