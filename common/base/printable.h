/* printable.h -- text from outside, made safe for terminals and for messages of one line.
 *
 * A character is printable if it is valid UTF-8 and no terminal acts on it.  Not printable are the C0 and C1 controls
 * (escape, newline and tab among them), DEL, line and paragraph separators, and changes of the writing direction. */
#ifndef GP_PRINTABLE_H
#define GP_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Return whether a terminal acts on a valid UTF-8 character of `length` bytes. */
bool gp_character_is_control(const uint8_t *character, size_t length);

/* Replace every character that is not printable with '?', a tab with a blank, in place.  Returns text. */
char *gp_printable(char *text);

/* GP_EINVAL: a character of text is not printable; `what` names the text in the message. */
gp_status gp_printable_check(const char *what, const char *text, gp_error *err);

#endif
