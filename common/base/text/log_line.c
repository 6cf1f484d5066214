/* Implement log_line.h: quoting and unquoting of logfmt values. */
#include "common/base/text/log_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/printable.h"

static const char cut_mark[] = "..."; /* suffix for a truncated value */

/* Characters that are written as a backslash and a letter, and these letters. */
static const char special[] = "\"\\\n\r\t", letters[] = "\"\\nrt";

/* Return whether a character may appear in an unquoted value. */
static bool bare_byte(char c)
{
    return c > ' ' && c <= '~' && c != '"' && c != '\\' && c != '=';
}

/* Write the first character in `value` to `out`, escaped for use in quotes. Return how many bytes
 * were consumed. */
static size_t quote_next(char out[20], const char *value)
{
    const uint8_t *c = (const uint8_t *)value;
    size_t length = gp_utf8_length(c, strnlen(value, 4));
    const char *plain = strchr(special, value[0]);

    if (plain != NULL) {
        snprintf(out, 20, "\\%c", letters[plain - special]);
        return 1;
    }
    if (length > 0 && !gp_character_is_control(c, length)) {
        memcpy(out, value, length);
        out[length] = '\0';
        return length;
    }
    length = length > 0 ? length : 1;
    for (size_t i = 0; i < length; i++)
        snprintf(out + 4 * i, 5, "\\x%02x", c[i]);
    return length;
}

void gp_log_line_put(gp_log_line *line, const char *key, const char *value, size_t bytes_max)
{
    /* Reserve room for the closing quote, the cut mark and the newline. */
    size_t room = sizeof(line->text) - line->bytes, least = strlen(key) + sizeof(" =\"\"...\n"), bare = 0;

    if (room <= least)
        return;
    room -= least;
    if (bytes_max > room)
        bytes_max = room;
    line->bytes += (size_t)sprintf(line->text + line->bytes, "%s%s=", line->bytes > 0 ? " " : "", key);
    while (bare_byte(value[bare]))
        bare++;
    if (bare > 0 && value[bare] == '\0' && bare <= bytes_max) {
        line->bytes += (size_t)sprintf(line->text + line->bytes, "%s", value);
        return;
    }
    size_t used = 0;

    line->text[line->bytes++] = '"';
    while (*value != '\0') {
        char next[20];
        size_t taken = quote_next(next, value), bytes = strlen(next);

        if (used + bytes > bytes_max) {
            line->bytes += (size_t)sprintf(line->text + line->bytes, "%s", cut_mark);
            break;
        }
        memcpy(line->text + line->bytes, next, bytes);
        line->bytes += bytes;
        used += bytes;
        value += taken;
    }
    line->text[line->bytes++] = '"';
}

void gp_log_line_put_integer(gp_log_line *line, const char *key, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    gp_log_line_put(line, key, text, sizeof(text));
}

void gp_log_line_end(gp_log_line *line)
{
    line->text[line->bytes++] = '\n';
}

/* ---- reading ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Read one byte from a quoted value. Return how many bytes were consumed; 0: value end or an
 * invalid escape. */
static size_t unquote_next(const char *at, char *out)
{
    const char *plain;

    if (*at == '"' || *at == '\0' || *at == '\n')
        return 0;
    *out = *at;
    if (*at != '\\')
        return 1;
    if (at[1] == 'x' && hex(at[2]) >= 0 && hex(at[3]) >= 0) {
        *out = (char)(hex(at[2]) * 16 + hex(at[3]));
        return 4;
    }
    plain = at[1] != '\0' ? strchr(letters, at[1]) : NULL;
    if (plain == NULL)
        return 0;
    *out = special[plain - letters];
    return 2;
}

/* Read a value and return the position behind it. out: NULL to skip the value. */
static const char *value_read(const char *at, char *out, size_t bytes)
{
    bool quoted = *at == '"';
    size_t used = 0, taken;
    char c;

    at += quoted;
    while ((taken = quoted ? unquote_next(at, &c) : (size_t)bare_byte(*at)) > 0) {
        if (!quoted)
            c = *at;
        if (out != NULL && used + 1 < bytes)
            out[used++] = c;
        at += taken;
    }
    if (out != NULL)
        out[used] = '\0';
    return at + (quoted && *at == '"');
}

bool gp_log_line_get(const char *line, const char *key, char *out, size_t bytes)
{
    size_t length = strlen(key);

    for (const char *at = line; *at != '\0' && *at != '\n';) {
        size_t word = strcspn(at, "= \n");
        bool found = word == length && memcmp(at, key, length) == 0;

        if (at[word] != '=')
            /* This is not a log line. */
            return false;
        at = value_read(at + word + 1, found ? out : NULL, bytes);
        if (found)
            return true;
        if (*at != ' ')
            return false;
        at++;
    }
    return false;
}
