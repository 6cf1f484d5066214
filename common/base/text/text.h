/* text.h -- numbers, ranges and nouns in messages. */
#ifndef GP_TEXT_H
#define GP_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { GP_NUMBER_BYTES = 40 };

/* Return the plural ending for a count: "" or "s". */
static inline const char *gp_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* Write the shortest text that reads back as the same number, with six significant digits or more as needed. */
const char *gp_number_text(double value, char text[GP_NUMBER_BYTES]);
const char *gp_float_text(float value, char text[GP_NUMBER_BYTES]);

/* Write ascending numbers as ranges, "0-3,8", and return text.  Cut with "..." what does not fit. */
char *gp_ranges_text(char *text, size_t bytes, const int *numbers, uint32_t count);

#endif
