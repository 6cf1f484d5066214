/* Format numbers, number ranges and plurals for messages. */
#ifndef GP_TEXT_H
#define GP_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { GP_NUMBER_BYTES = 40 }; /* buffer size for gp_number_text() and gp_float_text() */

/* Return the plural ending for a count: "" or "s". */
static inline const char *gp_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* Write the shortest decimal that reads back as the same number, with six or more significant
 * digits. Return text. */
const char *gp_number_text(double value, char text[GP_NUMBER_BYTES]);
const char *gp_float_text(float value, char text[GP_NUMBER_BYTES]);

/* Write ascending numbers as ranges, such as "0-3,8", and return text. A list that does not fit is
 * cut and ends with "...". */
char *gp_ranges_text(char *text, size_t bytes, const int *numbers, uint32_t count);

#endif
