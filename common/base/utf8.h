/* Validate UTF-8 text, one character at a time. */
#ifndef GP_UTF8_H
#define GP_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Return the byte length of the valid UTF-8 character at the start of text. 0: the bytes are
 * invalid or incomplete (RFC 3629: overlong forms, surrogates and code points above U+10FFFF are
 * invalid). */
size_t gp_utf8_length(const uint8_t *text, size_t bytes);

#endif
