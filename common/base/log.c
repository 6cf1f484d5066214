#include "common/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char log_who[48] = "gradpool";
static gp_log_level log_level = GP_LOG_WARN;
static const char *const level_names[] = { "debug", "info", "warn", "error" };

void gp_log_setup(const char *who, gp_log_level level)
{
    const char *wanted = getenv("GRADPOOL_LOG");

    snprintf(log_who, sizeof(log_who), "%s", who);
    log_level = level;
    for (int i = GP_LOG_DEBUG; wanted != NULL && i <= GP_LOG_ERROR; i++)
        if (strcmp(wanted, level_names[i]) == 0)
            log_level = (gp_log_level)i;
}

/* ---- storms ---- */

enum { KINDS = 64, WINDOW_MS = 1000 };

/* Lines of one format, which is what a call of gp_log() always has the same of. */
static struct kind {
    const char *format;
    int64_t began_ms;
    uint32_t written, left_out;
} kinds[KINDS];
static pthread_mutex_t kinds_lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t monotonic_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Its own place, or that of the format whose storm is longest past. */
static struct kind *kind_of(const char *format)
{
    struct kind *oldest = &kinds[0];

    for (int i = 0; i < KINDS; i++) {
        if (kinds[i].format == format)
            return &kinds[i];
        if (kinds[i].began_ms < oldest->began_ms)
            oldest = &kinds[i];
    }
    return oldest;
}

/* Whether the line is one too many; *before: so many like it were, and have not been told of. */
static bool storm_counts(const char *format, uint32_t *before)
{
    int64_t now_ms = monotonic_ms();
    bool too_many = false;

    *before = 0;
    if (pthread_mutex_trylock(&kinds_lock) != 0)
        return false; /* rather one line more than to wait */
    struct kind *k = kind_of(format);

    if (k->format != format || now_ms - k->began_ms >= WINDOW_MS) {
        *before = k->format == format ? k->left_out : 0;
        *k = (struct kind){ .format = format, .began_ms = now_ms };
    }
    too_many = k->written >= GP_LOG_BURST;
    k->written += !too_many;
    k->left_out += too_many;
    pthread_mutex_unlock(&kinds_lock);
    return too_many;
}

__attribute__((format(printf, 2, 0))) static void log_line(gp_log_level level, const char *format,
                                                           va_list arguments)
{
    char line[1024], stamp[32];
    struct timespec now;
    struct tm utc;

    clock_gettime(CLOCK_REALTIME, &now); /* for people only; nothing is decided by it */
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
    int length = snprintf(line, sizeof(line), "%s.%03ldZ %s %s[%d] ", stamp, now.tv_nsec / 1000000,
                          level_names[level], log_who, (int)getpid());

    length += vsnprintf(line + length, sizeof(line) - (size_t)length, format, arguments);
    if (length > (int)sizeof(line) - 2)
        length = (int)sizeof(line) - 2;
    for (int i = 0; i < length; i++)
        if ((unsigned char)line[i] < 0x20)
            line[i] = ' ';
    line[length] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)length + 1); /* a full disk stops nobody */

    (void)ignored;
}

__attribute__((format(printf, 2, 3))) static void log_count(gp_log_level level, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    log_line(level, format, arguments);
    va_end(arguments);
}

void gp_log(gp_log_level level, const char *format, ...)
{
    va_list arguments;
    uint32_t before;

    if (level < log_level || storm_counts(format, &before))
        return;
    if (before > 0)
        log_count(level, "%u lines like the next were left out: more than %d a second", before, GP_LOG_BURST);
    va_start(arguments, format);
    log_line(level, format, arguments);
    va_end(arguments);
}
