/* Make external text safe for terminals and for messages of a single line.
 *
 * A character is printable if it is valid UTF-8 and terminals do not interpret it. Not printable
 * are the C0 and C1 control characters (including escape, newline and tab), DEL, line and paragraph
 * separators, and characters that change the writing direction. */
#ifndef GP_PRINTABLE_H
#define GP_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Return the byte length of the valid UTF-8 character at the start of text. 0: the bytes are
 * invalid or incomplete (RFC 3629: overlong forms, surrogates and code points above U+10FFFF are
 * invalid). */
size_t gp_utf8_length(const uint8_t *text, size_t bytes);

/* Return the byte length of the valid UTF-8 at the start of text: all of it, or the bytes before
 * the first invalid byte or incomplete character. */
size_t gp_utf8_prefix(const uint8_t *text, size_t bytes);

/* Return whether the text is valid UTF-8. */
bool gp_utf8_valid(const uint8_t *text, size_t bytes);

/* Replace each byte that is not part of a valid UTF-8 sequence by '?'. */
void gp_utf8_clean(char *text, size_t bytes);

/* Return whether terminals interpret this character, a valid UTF-8 sequence with `length` bytes. */
bool gp_character_is_control(const uint8_t *character, size_t length);

/* Replace each tab by a space and every other unprintable character by '?', in place. Return
 * text. */
char *gp_printable(char *text);

/* Check that all characters in text are printable. `what` names the text in the error message.
 * GP_EINVAL: text has an unprintable character or invalid UTF-8. */
gp_status gp_printable_check(const char *what, const char *text, gp_error *err);

#endif
