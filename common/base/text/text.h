/* Format numbers, number ranges, plurals and consequences of errors for messages. */
#ifndef GP_TEXT_H
#define GP_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

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

/* Like gp_number_text(), but write whole numbers below 1e16 without an exponent. */
const char *gp_digits_text(double value, char text[GP_NUMBER_BYTES]);

/* Write ascending numbers as ranges, such as "0-3,8", and return text. A list that does not fit is
 * cut and ends with "...". */
char *gp_ranges_text(char *text, size_t bytes, const int *numbers, uint32_t count);

/* Put "; suffix" after the message in *err (may be NULL): a consequence of the failure, and what to
 * do. A message that is too long for both is cut and ends with "...". */
void gp_error_suffix(gp_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
