/* json.h -- bounded JSON: reading through jansson behind a depth check, writing into a gp_buffer. */
#ifndef GP_JSON_H
#define GP_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"

enum { GP_JSON_DEPTH_MAX = 32, GP_JSON_BYTES_MAX = 16 << 20 };

/* A value inside a parsed document; borrowed from it. */
typedef struct gp_json gp_json;

/* Parse one document of at most GP_JSON_BYTES_MAX bytes and GP_JSON_DEPTH_MAX levels; duplicate keys
 * are refused.  Released with gp_json_free(). */
gp_status gp_json_parse(gp_json **out, const char *text, size_t bytes, gp_error *err);
void gp_json_free(gp_json *document);

bool gp_json_is_object(const gp_json *value);
bool gp_json_is_array(const gp_json *value);
bool gp_json_is_text(const gp_json *value);
bool gp_json_is_number(const gp_json *value);
bool gp_json_is_bool(const gp_json *value);

/* NULL: there is none. These and the functions below take NULL for a value that is missing. */
const gp_json *gp_json_member(const gp_json *object, const char *key);
size_t gp_json_count(const gp_json *array); /* elements of an array; members of an object */
const gp_json *gp_json_element(const gp_json *array, size_t index);

/* Call visit for each member in the document's order, until it returns other than GP_OK. */
gp_status gp_json_each(const gp_json *object,
                       gp_status (*visit)(void *context, const char *key, const gp_json *value,
                                          gp_error *err),
                       void *context, gp_error *err);

const char *gp_json_text(const gp_json *value, const char *fallback); /* borrowed */
double gp_json_number(const gp_json *value, double fallback);
int64_t gp_json_integer(const gp_json *value, int64_t fallback);
bool gp_json_bool(const gp_json *value, bool fallback);

/* A writer puts commas and quotes; errors stick and are told by gp_json_writer_finish().
 * key is NULL for array elements and for the outermost value. */
typedef struct gp_json_writer {
    gp_buffer *buffer;
    gp_error error;
    unsigned depth;
    bool pretty;                        /* two-space indentation */
    bool one_line;                      /* of the container that is opened next */
    unsigned line_depth;                /* of the outermost open container that stands on one line; 0: none */
    bool filled[GP_JSON_DEPTH_MAX + 1]; /* whether the container at this depth has a member yet */
} gp_json_writer;

void gp_json_writer_init(gp_json_writer *writer, gp_buffer *buffer, bool pretty);
/* The next object or array stands on one line with all in it, in pretty form too: a shape, a layer. */
void gp_json_one_line(gp_json_writer *writer);
void gp_json_begin_object(gp_json_writer *writer, const char *key);
void gp_json_end_object(gp_json_writer *writer);
void gp_json_begin_array(gp_json_writer *writer, const char *key);
void gp_json_end_array(gp_json_writer *writer);
void gp_json_put_text(gp_json_writer *writer, const char *key, const char *text);
void gp_json_put_integer(gp_json_writer *writer, const char *key, int64_t value);
/* The shortest decimal that reads back as the same float64; NaN and infinities become null. */
void gp_json_put_number(gp_json_writer *writer, const char *key, double value);
/* The value as a printf format for one double writes it: "%.4f". NaN and infinities become null. */
void gp_json_put_rounded(gp_json_writer *writer, const char *key, const char *format, double value);
void gp_json_put_bool(gp_json_writer *writer, const char *key, bool value);
void gp_json_put_null(gp_json_writer *writer, const char *key);
/* Write a parsed value with all that it contains. NULL: null. */
void gp_json_put_value(gp_json_writer *writer, const char *key, const gp_json *value);
gp_status gp_json_writer_finish(gp_json_writer *writer, gp_error *err);

#endif
