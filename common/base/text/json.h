/* JSON with limits: parse with jansson after a depth check, and write into a gp_buffer. */
#ifndef GP_JSON_H
#define GP_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"

/* Limits: nesting depth, document size in bytes. */
enum { GP_JSON_DEPTH_MAX = 32, GP_JSON_BYTES_MAX = 16 << 20 };

/* A value in a parsed document. Values are borrowed from the document, which owns them. */
typedef struct gp_json gp_json;

/* Parse a document; free it with gp_json_free(). GP_ELIMIT: longer than GP_JSON_BYTES_MAX or deeper
 * than GP_JSON_DEPTH_MAX. GP_EINVAL: invalid JSON, or an object with a duplicate key. */
gp_status gp_json_parse(gp_json **out, const char *text, size_t bytes, gp_error *err);
void gp_json_free(gp_json *document);

/* Return whether a value has the given type. NULL, a missing value, has none. */
bool gp_json_is_object(const gp_json *value);
bool gp_json_is_array(const gp_json *value);
bool gp_json_is_text(const gp_json *value);
bool gp_json_is_number(const gp_json *value);
bool gp_json_is_bool(const gp_json *value);

/* Return an object member. NULL: no such member, or `object` is not an object. All functions below
 * accept NULL as a missing value, so lookups can be nested without checks. */
const gp_json *gp_json_member(const gp_json *object, const char *key);

size_t gp_json_count(const gp_json *array); /* array elements or object members; otherwise 0 */
const gp_json *gp_json_element(const gp_json *array, size_t index); /* NULL: index out of range */

/* Call visit() for each object member, in document order. Stop at the first status other than GP_OK
 * and return it. */
gp_status gp_json_each(const gp_json *object,
                       gp_status (*visit)(void *context, const char *key, const gp_json *value,
                                          gp_error *err),
                       void *context, gp_error *err);

/* Return a value converted to C, or `fallback` if the value is missing or has another type. Strings
 * are borrowed. */
const char *gp_json_text(const gp_json *value, const char *fallback);
double gp_json_number(const gp_json *value, double fallback);
int64_t gp_json_integer(const gp_json *value, int64_t fallback);
bool gp_json_bool(const gp_json *value, bool fallback);

/* JSON writer. Inserts commas, quotes and indentation. After the first error all calls are ignored,
 * and gp_json_writer_finish() returns that error. In all functions, `key` is NULL for array
 * elements and for the outermost value. */
typedef struct gp_json_writer {
    gp_buffer *buffer;                  /* output, borrowed */
    gp_error error;                     /* first error */
    unsigned depth;                     /* open objects and arrays */
    bool pretty;                        /* two-space indentation */
    bool one_line;                      /* write the next container on a single line */
    unsigned line_depth;                /* outermost depth written on a single line; 0: none */
    bool filled[GP_JSON_DEPTH_MAX + 1]; /* by depth: the open container has a member already */
} gp_json_writer;

/* Initialize a writer that appends to `buffer`. pretty: indent and break lines. */
void gp_json_writer_init(gp_json_writer *writer, gp_buffer *buffer, bool pretty);

/* Write the next object or array, with all its content, on a single line even in pretty form.
 * Intended for small values such as a shape or a layer. */
void gp_json_one_line(gp_json_writer *writer);

/* Open or close an object or array. */
void gp_json_begin_object(gp_json_writer *writer, const char *key);
void gp_json_end_object(gp_json_writer *writer);
void gp_json_begin_array(gp_json_writer *writer, const char *key);
void gp_json_end_array(gp_json_writer *writer);

/* Write a value of the given type. In texts, '?' replaces each byte that is no UTF-8. */
void gp_json_put_text(gp_json_writer *writer, const char *key, const char *text);
void gp_json_put_integer(gp_json_writer *writer, const char *key, int64_t value);

/* Write the shortest decimal that reads back as the same float64. NaN and infinity become null. */
void gp_json_put_number(gp_json_writer *writer, const char *key, double value);

/* Write a number with a printf format for one double, such as "%.4f". NaN and infinity become
 * null. */
void gp_json_put_rounded(gp_json_writer *writer, const char *key, const char *format, double value);

/* Write a number with this number of decimals, at most 9. NaN and infinity become null. Several
 * times faster than gp_json_put_rounded(), for values that are written in each training step. */
void gp_json_put_fixed(gp_json_writer *writer, const char *key, unsigned decimals, double value);
void gp_json_put_bool(gp_json_writer *writer, const char *key, bool value);
void gp_json_put_null(gp_json_writer *writer, const char *key);

/* Write a parsed value with all nested values. NULL: write null. */
void gp_json_put_value(gp_json_writer *writer, const char *key, const gp_json *value);

/* Return the first error of all calls. All containers must be closed. */
gp_status gp_json_writer_finish(gp_json_writer *writer, gp_error *err);

#endif
