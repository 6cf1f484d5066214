/* utf8.h -- what a well-formed character is. */
#ifndef GP_UTF8_H
#define GP_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length of the valid UTF-8 character at the start of text, 0 if there is none (RFC 3629: no overlong forms, no
 * surrogates, nothing above U+10FFFF). */
size_t gp_utf8_length(const uint8_t *text, size_t bytes);

#endif
