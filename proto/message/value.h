/* Range checks for field values, shared by encoder and decoder. Internal to proto/. */
#ifndef GP_VALUE_H
#define GP_VALUE_H

#include "proto/message/codec.h"

/* Check a value against the range in its field table. On failure return `code` with an error such
 * as "batch is 0; it must be in [1, 1048576]". */
gp_status gp_value_check_unsigned(const gp_field *field, uint64_t value, gp_status code, gp_error *err);
gp_status gp_value_check_signed(const gp_field *field, int64_t value, gp_status code, gp_error *err);
gp_status gp_value_check_float(const gp_field *field, double value, gp_status code, gp_error *err);

/* Return the member address at this offset. */
static inline const void *gp_value_at(const void *base, size_t offset)
{
    return (const char *)base + offset;
}

#endif
