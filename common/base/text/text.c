/* Implement text.h. */
#include "common/base/text/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than 2^53, the largest seed. */
#define WHOLE_MAX 1e16

const char *gp_number_text(double value, char text[GP_NUMBER_BYTES])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, GP_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}

const char *gp_float_text(float value, char text[GP_NUMBER_BYTES])
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, GP_NUMBER_BYTES, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return text;
}

const char *gp_digits_text(double value, char text[GP_NUMBER_BYTES])
{
    if (value != floor(value) || fabs(value) >= WHOLE_MAX)
        return gp_number_text(value, text);
    snprintf(text, GP_NUMBER_BYTES, "%.0f", value);
    return text;
}

char *gp_ranges_text(char *text, size_t bytes, const int *numbers, uint32_t count)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        uint32_t last = i;
        char piece[32];

        while (last + 1 < count && numbers[last + 1] == numbers[last] + 1)
            last++;
        int length = last == i ? snprintf(piece, sizeof(piece), "%s%d", used == 0 ? "" : ",", numbers[i])
                               : snprintf(piece, sizeof(piece), "%s%d-%d", used == 0 ? "" : ",", numbers[i],
                                          numbers[last]);

        if (used + (size_t)length + sizeof("...") > bytes) {
            snprintf(text + used, bytes - used, "...");
            break;
        }
        memcpy(text + used, piece, (size_t)length + 1);
        used += (size_t)length;
        i = last;
    }
    return text;
}

void gp_error_suffix(gp_error *err, const char *format, ...)
{
    char message[GP_ERROR_MESSAGE_MAX], suffix[GP_ERROR_MESSAGE_MAX];
    va_list arguments;
    size_t room;

    if (err == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(suffix, sizeof(suffix), format, arguments);
    va_end(arguments);
    memcpy(message, err->message, sizeof(message));
    room = sizeof(message) - strlen("; ") - strlen(suffix) - 1;
    if (room < sizeof(message) && room > strlen("...") && strlen(message) > room)
        strcpy(message + room - strlen("..."), "...");
    gp_fail(err, err->code, "%s; %s", message, suffix);
}
