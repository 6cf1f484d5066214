#include "common/base/log.h"

#include <stdarg.h>
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

void gp_log(gp_log_level level, const char *format, ...)
{
    char line[1024], stamp[32];
    struct timespec now;
    struct tm utc;
    va_list arguments;

    if (level < log_level)
        return;
    clock_gettime(CLOCK_REALTIME, &now); /* for people only; nothing is decided by it */
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
    int length = snprintf(line, sizeof(line), "%s.%03ldZ %s %s[%d] ", stamp, now.tv_nsec / 1000000,
                          level_names[level], log_who, (int)getpid());

    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof(line) - (size_t)length, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof(line) - 2)
        length = (int)sizeof(line) - 2;
    for (int i = 0; i < length; i++)
        if ((unsigned char)line[i] < 0x20)
            line[i] = ' ';
    line[length] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)length + 1); /* a full disk stops nobody */

    (void)ignored;
}
