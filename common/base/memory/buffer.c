/* Implement buffer.h: reallocation by doubling, with a size limit and a terminating NUL. */
#include "common/base/memory/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"

void gp_buffer_init(gp_buffer *buffer, size_t bytes_max)
{
    *buffer = (gp_buffer){ .bytes_max = bytes_max };
}

void gp_buffer_deinit(gp_buffer *buffer)
{
    gp_free(buffer->data);
    *buffer = (gp_buffer){ .bytes_max = buffer->bytes_max };
}

void gp_buffer_clear(gp_buffer *buffer)
{
    buffer->bytes = 0;
    if (buffer->data != NULL)
        buffer->data[0] = '\0';
}

gp_status gp_buffer_reserve(gp_buffer *buffer, size_t more, gp_error *err)
{
    if (more > buffer->bytes_max || buffer->bytes > buffer->bytes_max - more)
        return gp_fail(err, GP_ELIMIT,
                       "the buffer would exceed its limit: %zu + %zu bytes, at most %zu are allowed",
                       buffer->bytes, more, buffer->bytes_max);
    /* One more byte for the NUL. */
    size_t needed = buffer->bytes + more + 1;

    if (needed <= buffer->capacity)
        return GP_OK;
    size_t capacity = buffer->capacity < 128 ? 256 : buffer->capacity * 2;

    if (capacity < needed)
        capacity = needed;
    uint8_t *data = gp_realloc_array(buffer->data, capacity, 1);

    if (data == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a buffer of %zu bytes", capacity);
    buffer->data = data;
    buffer->capacity = capacity;
    data[buffer->bytes] = '\0';
    return GP_OK;
}

gp_status gp_buffer_append(gp_buffer *buffer, const void *data, size_t bytes, gp_error *err)
{
    gp_status status = gp_buffer_reserve(buffer, bytes, err);

    if (status != GP_OK)
        return status;
    if (bytes != 0)
        memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    buffer->data[buffer->bytes] = '\0';
    return GP_OK;
}

/* Format twice: the first pass only measures the length. */
gp_status gp_buffer_printf(gp_buffer *buffer, gp_error *err, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return gp_fail(err, GP_EINVAL, "cannot format '%s'", format);
    gp_status status = gp_buffer_reserve(buffer, (size_t)length, err);

    if (status != GP_OK)
        return status;
    va_start(arguments, format);
    vsnprintf((char *)buffer->data + buffer->bytes, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->bytes += (size_t)length;
    return GP_OK;
}

gp_status gp_buffer_csv_field(gp_buffer *buffer, const char *field, gp_error *err)
{
    gp_status status;

    if (strpbrk(field, ",\"\r\n") == NULL)
        return gp_buffer_append(buffer, field, strlen(field), err);
    status = gp_buffer_append(buffer, "\"", 1, err);
    for (; *field != '\0' && status == GP_OK; field++)
        status = gp_buffer_append(buffer, *field == '"' ? "\"\"" : field, *field == '"' ? 2 : 1, err);
    return status == GP_OK ? gp_buffer_append(buffer, "\"", 1, err) : status;
}

gp_status gp_buffer_shell_word(gp_buffer *buffer, const char *word, gp_error *err)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    gp_status status = GP_OK;

    if (word[0] != '\0' && word[strspn(word, plain)] == '\0')
        return gp_buffer_append(buffer, word, strlen(word), err);
    status = gp_buffer_append(buffer, "'", 1, err);
    while (*word != '\0' && status == GP_OK) {
        size_t bytes = strcspn(word, "'");

        status = gp_buffer_append(buffer, word, bytes, err);
        word += bytes;
        if (status == GP_OK && *word == '\'') {
            status = gp_buffer_append(buffer, "'\\''", 4, err);
            word++;
        }
    }
    return status == GP_OK ? gp_buffer_append(buffer, "'", 1, err) : status;
}

const char *gp_buffer_text(const gp_buffer *buffer)
{
    return buffer->data == NULL ? "" : (const char *)buffer->data;
}

uint8_t *gp_buffer_take(gp_buffer *buffer, size_t *bytes)
{
    uint8_t *data = buffer->data;

    *bytes = buffer->bytes;
    *buffer = (gp_buffer){ .bytes_max = buffer->bytes_max };
    return data;
}
