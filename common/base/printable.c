/* Implement printable.h: detect and replace characters that terminals interpret. */
#include "common/base/printable.h"

#include <string.h>

size_t gp_utf8_length(const uint8_t *text, size_t bytes)
{
    uint8_t lead = text[0];
    /* Lead bytes 0xc0 and 0xc1 only occur in overlong forms; 0xf5 and above exceed U+10FFFF. */
    size_t length = lead < 0x80   ? 1
                    : lead < 0xc2 ? 0
                    : lead < 0xe0 ? 2
                    : lead < 0xf0 ? 3
                    : lead < 0xf5 ? 4
                                  : 0;

    if (length == 0 || length > bytes)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;

    /* The first continuation byte reveals other overlong forms (0xe0, 0xf0), surrogates (0xed) and
     * code points above U+10FFFF (0xf4). */
    if ((lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f) ||
        (lead == 0xf0 && text[1] < 0x90) || (lead == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

size_t gp_utf8_prefix(const uint8_t *text, size_t bytes)
{
    size_t at = 0, length;

    while (at < bytes && (length = gp_utf8_length(text + at, bytes - at)) > 0)
        at += length;
    return at;
}

bool gp_utf8_valid(const uint8_t *text, size_t bytes)
{
    return gp_utf8_prefix(text, bytes) == bytes;
}

void gp_utf8_clean(char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t length = gp_utf8_length((const uint8_t *)text + at, bytes - at);

        if (length == 0)
            text[at++] = '?';
        at += length;
    }
}

bool gp_character_is_control(const uint8_t *character, size_t length)
{
    const uint8_t *c = character;

    /* C0 control characters and DEL. */
    if (length == 1)
        return c[0] < ' ' || c[0] == 0x7f;

    /* C1 control characters, U+0080 to U+009F. */
    if (length == 2)
        return c[0] == 0xc2 && c[1] < 0xa0;

    /* U+2028 to U+202E (separators, direction overrides) and U+2066 to U+2069 (direction
     * isolates). */
    return length == 3 && c[0] == 0xe2 &&
           ((c[1] == 0x80 && c[2] >= 0xa8 && c[2] <= 0xae) || (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9));
}

/* Return the byte length of the character at text, and set *printable to whether it is printable.
 * An invalid byte counts as one character. */
static size_t character_next(const char *text, bool *printable)
{
    const uint8_t *c = (const uint8_t *)text;
    size_t length = gp_utf8_length(c, strnlen(text, 4));

    *printable = length > 0 && !gp_character_is_control(c, length);
    return length > 0 ? length : 1;
}

char *gp_printable(char *text)
{
    char *to = text;

    for (const char *at = text; *at != '\0';) {
        bool printable;
        size_t length = character_next(at, &printable);

        if (printable)
            memmove(to, at, length);
        else
            *to = *at == '\t' ? ' ' : '?';
        to += printable ? length : 1;
        at += length;
    }
    *to = '\0';
    return text;
}

gp_status gp_printable_check(const char *what, const char *text, gp_error *err)
{
    bool printable;

    for (size_t at = 0; text[at] != '\0';) {
        size_t length = character_next(text + at, &printable);

        if (!printable)
            return gp_fail(err, GP_EINVAL,
                           "the %s contains a control character or invalid UTF-8 (0x%02x at byte %zu); use "
                           "printable characters",
                           what, (unsigned char)text[at], at + 1);
        at += length;
    }
    return GP_OK;
}
