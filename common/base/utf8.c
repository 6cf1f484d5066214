/* Implement utf8.h. */
#include "common/base/utf8.h"

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
