/* Implement error.h: fill in error values, and look up status codes in status.def. */
#include "common/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/printable.h"

static const struct {
    gp_status code;
    const char *name, *text;
} statuses[] = {
#define X(code, number, text) { code, #code, text },
#include "common/base/status.def"
#undef X
};

enum { STATUS_COUNT = sizeof(statuses) / sizeof(statuses[0]) };

gp_status(gp_fail)(gp_error *err, gp_status code, const char *format, ...)
{
    if (err != NULL) {
        va_list arguments;

        va_start(arguments, format);
        /* Mark a truncated message, and replace line breaks and unprintable characters: messages
         * can quote external names, and library messages can have several lines. */
        if (vsnprintf(err->message, sizeof(err->message), format, arguments) >= GP_ERROR_MESSAGE_MAX)
            memcpy(err->message + GP_ERROR_MESSAGE_MAX - 4, "...", 4);
        for (char *c = err->message; *c != '\0'; c++)
            if (*c == '\n' || *c == '\r')
                *c = ' ';
        gp_printable(err->message);
        va_end(arguments);
        err->code = code;
    }
    return code;
}

gp_status(gp_fail_errno)(gp_error *err, gp_status code, const char *format, ...)
{
    int saved = errno;

    if (saved == ENOMEM)
        code = GP_ENOMEM;
    else if (saved == EMFILE || saved == ENFILE)
        code = GP_ELIMIT;
    if (err != NULL) {
        va_list arguments;
        char text[GP_ERROR_MESSAGE_MAX];

        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        gp_fail(err, code, "%s: %s", text, strerror(saved));
    }
    return code;
}

void gp_error_prefix(gp_error *err, const char *format, ...)
{
    va_list arguments;
    char prefix[GP_ERROR_MESSAGE_MAX], rest[GP_ERROR_MESSAGE_MAX];

    if (err == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof(prefix), format, arguments);
    va_end(arguments);
    memcpy(rest, err->message, sizeof(rest));
    gp_fail(err, err->code, "%s: %s", prefix, rest);
}

const char *gp_status_text(gp_status code)
{
    for (int i = 0; i < STATUS_COUNT; i++)
        if (statuses[i].code == code)
            return statuses[i].text;
    return "unknown status";
}

const char *gp_status_name(gp_status code)
{
    for (int i = 0; i < STATUS_COUNT; i++)
        if (statuses[i].code == code)
            return statuses[i].name;
    return "GP_UNKNOWN";
}

int gp_status_known(long number)
{
    for (int i = 0; i < STATUS_COUNT; i++)
        if ((long)statuses[i].code == number)
            return 1;
    return 0;
}
