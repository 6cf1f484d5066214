/* Text in the man macros of roff. */
#ifndef GP_CLI_ROFF_H
#define GP_CLI_ROFF_H

#include <stdint.h>
#include <stdio.h>

/* Write text with the special characters of roff escaped. `Quoted` words become bold, and
 * [links](target) lose the target. A line end in the text ends the line.
 *   bytes  size of the text, or SIZE_MAX: up to the NUL */
void roff_text(FILE *out, const char *text, size_t bytes);

/* Write a usage line: literal words are bold, and placeholders, which are in capitals, italic. */
void roff_usage(FILE *out, const char *usage);

/* Write literal text without formatting and without a line end. */
void roff_literal(FILE *out, const char *text, size_t bytes);

#endif
