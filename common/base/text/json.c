/* Implement json.h. This is the only file that uses jansson. */
#include "common/base/text/json.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/printable.h"
#include "common/base/text/text.h"

#define WHOLE_MAX 0x1p53 /* largest magnitude of a real that is written as a whole number */

/* Convert to the jansson type. gp_json is an opaque name for json_t: there is no wrapper object and
 * therefore only one owner to track. */
static json_t *unwrap(const gp_json *value)
{
    return (json_t *)(uintptr_t)value;
}

/* Check the nesting depth before parsing. jansson itself allows a depth of 2048 and parses
 * recursively. */
static gp_status json_check_depth(const char *text, size_t bytes, gp_error *err)
{
    unsigned depth = 0;
    bool quoted = false;

    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];

        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > GP_JSON_DEPTH_MAX)
                return gp_fail(err, GP_ELIMIT, "JSON has more than %d levels of nesting", GP_JSON_DEPTH_MAX);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return GP_OK;
}

gp_status gp_json_parse(gp_json **out, const char *text, size_t bytes, gp_error *err)
{
    json_error_t problem;

    if (bytes > GP_JSON_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "JSON has %zu bytes, at most %d are supported", bytes,
                       GP_JSON_BYTES_MAX);
    gp_status status = json_check_depth(text, bytes, err);

    if (status != GP_OK)
        return status;
    errno = 0;
    json_t *document = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);

    /* When memory is exhausted, jansson may report a syntax error, report nothing, or return a
     * document with a truncated key or string. Only errno reveals all three cases. */
    if (errno == ENOMEM) {
        json_decref(document);
        return gp_fail(err, GP_ENOMEM, "no memory for JSON of %zu bytes", bytes);
    }
    if (document == NULL)
        return gp_fail(err, GP_EINVAL, "malformed JSON at line %d, column %d: %s", problem.line,
                       problem.column, problem.text);
    *out = (gp_json *)document;
    return GP_OK;
}

void gp_json_free(gp_json *document)
{
    json_decref(unwrap(document));
}

bool gp_json_is_object(const gp_json *value)
{
    return json_is_object(unwrap(value));
}

bool gp_json_is_array(const gp_json *value)
{
    return json_is_array(unwrap(value));
}

bool gp_json_is_text(const gp_json *value)
{
    return json_is_string(unwrap(value));
}

bool gp_json_is_number(const gp_json *value)
{
    return json_is_number(unwrap(value));
}

bool gp_json_is_bool(const gp_json *value)
{
    return json_is_boolean(unwrap(value));
}

const gp_json *gp_json_member(const gp_json *object, const char *key)
{
    return (const gp_json *)json_object_get(unwrap(object), key);
}

size_t gp_json_count(const gp_json *array)
{
    return json_is_object(unwrap(array)) ? json_object_size(unwrap(array)) : json_array_size(unwrap(array));
}

const gp_json *gp_json_element(const gp_json *array, size_t index)
{
    return (const gp_json *)json_array_get(unwrap(array), index);
}

gp_status gp_json_each(const gp_json *object,
                       gp_status (*visit)(void *context, const char *key, const gp_json *value,
                                          gp_error *err),
                       void *context, gp_error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach (unwrap(object), key, value) {
        gp_status status = visit(context, key, (const gp_json *)value, err);

        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

const char *gp_json_text(const gp_json *value, const char *fallback)
{
    return gp_json_is_text(value) ? json_string_value(unwrap(value)) : fallback;
}

double gp_json_number(const gp_json *value, double fallback)
{
    return gp_json_is_number(value) ? json_number_value(unwrap(value)) : fallback;
}

int64_t gp_json_integer(const gp_json *value, int64_t fallback)
{
    return json_is_integer(unwrap(value)) ? (int64_t)json_integer_value(unwrap(value)) : fallback;
}

bool gp_json_bool(const gp_json *value, bool fallback)
{
    return gp_json_is_bool(value) ? json_boolean_value(unwrap(value)) : fallback;
}

void gp_json_writer_init(gp_json_writer *writer, gp_buffer *buffer, bool pretty)
{
    *writer = (gp_json_writer){ .buffer = buffer, .pretty = pretty };
}

static void writer_raw(gp_json_writer *writer, const char *text, size_t bytes)
{
    if (writer->error.code == GP_OK)
        gp_buffer_append(writer->buffer, text, bytes, &writer->error);
}

static void writer_newline(gp_json_writer *writer)
{
    writer_raw(writer, "\n", 1);
    for (unsigned i = 0; i < writer->depth; i++)
        writer_raw(writer, "  ", 2);
}

/* Return the number of bytes of a character that a string can hold as it is; 0: it must be escaped
 * or replaced, or the text ends. */
static size_t plain_length(const char *c)
{
    if ((unsigned char)*c >= 0x80)
        return gp_utf8_length((const uint8_t *)c, strnlen(c, 4));
    return (unsigned char)*c >= 0x20 && *c != '"' && *c != '\\' ? 1 : 0;
}

/* Write a quoted string. Control characters, quotes and backslashes are escaped. Bytes that are no
 * UTF-8, such as a character that was cut, become '?': no reader accepts them. */
static void writer_quoted(gp_json_writer *writer, const char *text)
{
    char escape[8];
    size_t length;

    writer_raw(writer, "\"", 1);
    for (const char *c = text;; c++) {
        const char *plain = c;

        while ((length = plain_length(c)) > 0)
            c += length;
        writer_raw(writer, plain, (size_t)(c - plain));
        if (*c == '\0')
            break;
        if ((unsigned char)*c >= 0x80)
            snprintf(escape, sizeof(escape), "?");
        else
            snprintf(escape, sizeof(escape), *c == '"' || *c == '\\' ? "\\%c" : "\\u%04x", (unsigned char)*c);
        writer_raw(writer, escape, strlen(escape));
    }
    writer_raw(writer, "\"", 1);
}

/* Return whether members in the open container start on a new line. */
static bool writer_breaks(const gp_json_writer *writer)
{
    return writer->pretty && writer->line_depth == 0;
}

/* Write everything that precedes a value: comma, line break, indentation and key. */
static void writer_lead(gp_json_writer *writer, const char *key)
{
    if (writer->depth > 0) {
        if (writer->filled[writer->depth])
            writer_raw(writer, ", ", writer_breaks(writer) ? 1 : 2);
        writer->filled[writer->depth] = true;
        if (writer_breaks(writer))
            writer_newline(writer);
    }
    if (key != NULL) {
        writer_quoted(writer, key);
        writer_raw(writer, ": ", 2);
    }
}

/* Open a container. If one_line is set, or an outer container is on a single line, the new
 * container stays on that line. */
static void writer_open(gp_json_writer *writer, const char *key, const char *bracket)
{
    assert(writer->depth < GP_JSON_DEPTH_MAX);
    writer_lead(writer, key);
    writer_raw(writer, bracket, 1);
    writer->filled[++writer->depth] = false;
    if (writer->one_line && writer->line_depth == 0)
        writer->line_depth = writer->depth;
    writer->one_line = false;
}

static void writer_close(gp_json_writer *writer, const char *bracket)
{
    assert(writer->depth > 0);
    bool breaks = writer->filled[writer->depth] && writer_breaks(writer);

    if (writer->line_depth == writer->depth)
        writer->line_depth = 0;
    writer->depth--;
    if (breaks)
        writer_newline(writer);
    writer_raw(writer, bracket, 1);
}

void gp_json_one_line(gp_json_writer *writer)
{
    writer->one_line = true;
}

void gp_json_begin_object(gp_json_writer *writer, const char *key)
{
    writer_open(writer, key, "{");
}

void gp_json_end_object(gp_json_writer *writer)
{
    writer_close(writer, "}");
}

void gp_json_begin_array(gp_json_writer *writer, const char *key)
{
    writer_open(writer, key, "[");
}

void gp_json_end_array(gp_json_writer *writer)
{
    writer_close(writer, "]");
}

void gp_json_put_text(gp_json_writer *writer, const char *key, const char *text)
{
    writer_lead(writer, key);
    writer_quoted(writer, text);
}

static void writer_literal(gp_json_writer *writer, const char *key, const char *literal)
{
    writer_lead(writer, key);
    writer_raw(writer, literal, strlen(literal));
}

void gp_json_put_integer(gp_json_writer *writer, const char *key, int64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRId64, value);
    writer_literal(writer, key, text);
}

void gp_json_put_number(gp_json_writer *writer, const char *key, double value)
{
    char text[GP_NUMBER_BYTES];

    writer_literal(writer, key, isfinite(value) ? gp_number_text(value, text) : "null");
}

void gp_json_put_rounded(gp_json_writer *writer, const char *key, const char *format, double value)
{
    /* The largest float64 has 309 digits before the decimal point. */
    char text[400];

    snprintf(text, sizeof(text), format, value);
    writer_literal(writer, key, isfinite(value) ? text : "null");
}

void gp_json_put_fixed(gp_json_writer *writer, const char *key, unsigned decimals, double value)
{
    static const double scales[] = { 1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9 };
    const double scaled = fabs(value) * scales[decimals];
    char text[400], *at = text + sizeof(text);
    uint64_t digits;

    if (!(scaled < 1e15)) { /* also NaN */
        snprintf(text, sizeof(text), "%.*f", (int)decimals, value);
        writer_literal(writer, key, isfinite(value) ? text : "null");
        return;
    }
    digits = (uint64_t)llrint(scaled);

    const bool negative = value < 0 && digits > 0;

    *--at = '\0';
    for (unsigned i = 0; i <= decimals || digits > 0; i++, digits /= 10) {
        if (i == decimals && decimals > 0)
            *--at = '.';
        *--at = (char)('0' + digits % 10);
    }
    if (negative)
        *--at = '-';
    writer_literal(writer, key, at);
}

void gp_json_put_bool(gp_json_writer *writer, const char *key, bool value)
{
    writer_literal(writer, key, value ? "true" : "false");
}

void gp_json_put_null(gp_json_writer *writer, const char *key)
{
    writer_literal(writer, key, "null");
}

static gp_status put_member(void *context, const char *key, const gp_json *value, gp_error *err)
{
    (void)err;
    gp_json_put_value(context, key, value);
    return GP_OK;
}

void gp_json_put_value(gp_json_writer *writer, const char *key, const gp_json *value)
{
    double number = gp_json_number(value, 0);

    if (gp_json_is_object(value)) {
        gp_json_begin_object(writer, key);
        gp_json_each(value, put_member, writer, NULL);
        gp_json_end_object(writer);
    } else if (gp_json_is_array(value)) {
        gp_json_begin_array(writer, key);
        for (size_t i = 0; i < gp_json_count(value); i++)
            gp_json_put_value(writer, NULL, gp_json_element(value, i));
        gp_json_end_array(writer);
    } else if (gp_json_is_text(value)) {
        gp_json_put_text(writer, key, gp_json_text(value, ""));
    } else if (gp_json_is_bool(value)) {
        gp_json_put_bool(writer, key, gp_json_bool(value, false));
    } else if (json_is_integer(unwrap(value))) {
        gp_json_put_integer(writer, key, gp_json_integer(value, 0));
    } else if (gp_json_is_number(value) && fabs(number) <= WHOLE_MAX && number == floor(number)) {
        gp_json_put_integer(writer, key, (int64_t)number);
    } else if (gp_json_is_number(value)) {
        gp_json_put_number(writer, key, number);
    } else {
        gp_json_put_null(writer, key);
    }
}

gp_status gp_json_writer_finish(gp_json_writer *writer, gp_error *err)
{
    assert(writer->depth == 0);
    if (writer->error.code != GP_OK && err != NULL)
        *err = writer->error;
    return writer->error.code;
}
