/* A growing byte buffer with a size limit. An append that would exceed the limit fails and leaves
 * the buffer unchanged. */
#ifndef GP_BUFFER_H
#define GP_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Byte buffer. Call gp_buffer_init() before the first use. */
typedef struct gp_buffer {
    /* owned; NULL: empty. If not NULL, a NUL follows the last byte */
    uint8_t *data;
    size_t bytes, capacity, bytes_max; /* content size, allocated size, content limit */
} gp_buffer;

/* Initialize an empty buffer for at most bytes_max bytes. Appends beyond that return GP_ELIMIT. */
void gp_buffer_init(gp_buffer *buffer, size_t bytes_max);

/* Free the memory. The buffer is empty and can be used again. */
void gp_buffer_deinit(gp_buffer *buffer);
void gp_buffer_clear(gp_buffer *buffer); /* remove the content, keep the memory */

/* Allocate room for `more` bytes after the content, which does not change. GP_ELIMIT: the content
 * would exceed bytes_max. GP_ENOMEM. */
gp_status gp_buffer_reserve(gp_buffer *buffer, size_t more, gp_error *err);

/* Append bytes. Errors as for gp_buffer_reserve(). */
gp_status gp_buffer_append(gp_buffer *buffer, const void *data, size_t bytes, gp_error *err);

/* Append formatted text. GP_EINVAL: vsnprintf() rejects the format; other errors as for
 * gp_buffer_reserve(). */
gp_status gp_buffer_printf(gp_buffer *buffer, gp_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Append one CSV field (RFC 4180), quoted if necessary. The caller appends the commas. */
gp_status gp_buffer_csv_field(gp_buffer *buffer, const char *field, gp_error *err);

/* Append a word, quoted for a POSIX shell if necessary. */
gp_status gp_buffer_shell_word(gp_buffer *buffer, const char *word, gp_error *err);

/* Return the content as a C string, valid until the next append. Empty buffer: "". */
const char *gp_buffer_text(const gp_buffer *buffer);

/* Transfer the memory to the caller, who frees it with gp_free(). The buffer is empty afterwards.
 * NULL: the buffer had no memory. */
uint8_t *gp_buffer_take(gp_buffer *buffer, size_t *bytes);

#endif
