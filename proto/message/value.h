/* value.h -- inside proto/: what a field's table says about a value, checked the same way on both sides. */
#ifndef GP_VALUE_H
#define GP_VALUE_H

#include "proto/message/codec.h"

/* Each returns GP_OK or fails with `code` and a text like "batch is 0; it must be in [1, 1048576]". */
gp_status gp_value_check_unsigned(const gp_field *field, uint64_t value, gp_status code, gp_error *err);
gp_status gp_value_check_signed(const gp_field *field, int64_t value, gp_status code, gp_error *err);
gp_status gp_value_check_float(const gp_field *field, double value, gp_status code, gp_error *err);

static inline const void *gp_value_at(const void *base, size_t offset)
{
    return (const char *)base + offset;
}

#endif
