/* buffer.h -- growing bytes with a ceiling.  An append that would pass the ceiling fails whole. */
#ifndef GP_BUFFER_H
#define GP_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct gp_buffer {
    uint8_t *data; /* owned; a NUL follows the last byte whenever data is not NULL */
    size_t bytes, capacity, bytes_max;
} gp_buffer;

/* bytes_max: the ceiling; exceeding it is GP_ELIMIT. */
void gp_buffer_init(gp_buffer *buffer, size_t bytes_max);
void gp_buffer_deinit(gp_buffer *buffer);
void gp_buffer_clear(gp_buffer *buffer); /* keeps the memory */

/* Make room for `more` bytes after the present ones. */
gp_status gp_buffer_reserve(gp_buffer *buffer, size_t more, gp_error *err);
gp_status gp_buffer_append(gp_buffer *buffer, const void *data, size_t bytes, gp_error *err);
gp_status gp_buffer_printf(gp_buffer *buffer, gp_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One field of a CSV file (RFC 4180), quoted where it has to be. */
gp_status gp_buffer_csv_field(gp_buffer *buffer, const char *field, gp_error *err);

/* The bytes as a C string ("" when empty); valid until the next append. */
const char *gp_buffer_text(const gp_buffer *buffer);

/* Hand the memory over to the caller, who frees it with gp_free(); the buffer is empty afterwards. */
uint8_t *gp_buffer_take(gp_buffer *buffer, size_t *bytes);

#endif
