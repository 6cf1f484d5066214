#include "client/cli/manual/roff.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Write one character so that roff prints it as itself: ASCII quotes and hyphens, which can be
 * copied to a shell. */
static void roff_put(FILE *out, char c)
{
    const char *escaped = c == '\\'   ? "\\e"
                          : c == '-'  ? "\\-"
                          : c == '\'' ? "\\(aq"
                          : c == '`'  ? "\\(ga"
                          : c == '^'  ? "\\(ha"
                          : c == '~'  ? "\\(ti"
                                      : NULL;

    if (escaped != NULL)
        fputs(escaped, out);
    else
        fputc(c, out);
}

/* Return whether `text`, which begins with "[", is a link: [TEXT](TARGET). */
static bool is_link(const char *text)
{
    const char *end = strchr(text, ']');

    return end != NULL && end[1] == '(';
}

void roff_text(FILE *out, const char *text, size_t bytes)
{
    const char *end = text + (bytes == SIZE_MAX ? strlen(text) : bytes);
    bool bold = false, link = false, line = true;

    for (; text < end; text++) {
        if (*text == '`') {
            bold = !bold;
            fputs(bold ? "\\fB" : "\\fR", out);
        } else if (!bold && !link && *text == '[' && is_link(text)) {
            link = true;
        } else if (!bold && link && *text == ']') {
            link = false;
            text += strcspn(text, ")");
        } else {
            if (line && *text == '.')
                fputs("\\&", out);
            roff_put(out, *text);
        }
        line = *text == '\n';
    }
    fputc('\n', out);
}

void roff_literal(FILE *out, const char *text, size_t bytes)
{
    if (bytes > 0 && *text == '.')
        fputs("\\&", out);
    while (bytes-- > 0)
        roff_put(out, *text++);
}

/* Return whether the word is a placeholder: no lower-case letter, and a capital. "options" stands
 * for options too. */
static bool is_placeholder(const char *word, size_t bytes)
{
    bool capital = false;

    if (bytes == 7 && memcmp(word, "options", 7) == 0)
        return true;
    for (size_t i = 0; i < bytes; i++) {
        if (islower((unsigned char)word[i]))
            return false;
        capital = capital || isupper((unsigned char)word[i]);
    }
    return capital;
}

void roff_usage(FILE *out, const char *usage)
{
    while (*usage != '\0') {
        const bool option = strncmp(usage, "--", 2) == 0;
        size_t bytes = 0;

        while (isalnum((unsigned char)usage[bytes]) || usage[bytes] == '-' || usage[bytes] == '_' ||
               (option && usage[bytes] == '.' && islower((unsigned char)usage[bytes + 1])))
            bytes++;
        if (bytes == 0) {
            roff_put(out, *usage++);
            continue;
        }
        fputs(is_placeholder(usage, bytes) ? "\\fI" : "\\fB", out);
        for (; bytes > 0; bytes--)
            roff_put(out, *usage++);
        fputs("\\fR", out);
    }
    fputc('\n', out);
}
