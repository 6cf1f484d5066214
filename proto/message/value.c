/* Check field values against their table ranges (value.h). */
#include "proto/message/value.h"

#include <inttypes.h>
#include <math.h>

gp_status gp_value_check_unsigned(const gp_field *field, uint64_t value, gp_status code, gp_error *err)
{
    if (value < field->umin || value > field->umax)
        return gp_fail(err, code, "%s is %" PRIu64 "; it must be in [%" PRIu64 ", %" PRIu64 "]", field->name,
                       value, field->umin, field->umax);
    if (field->kind == GP_KIND_STATUS && !gp_status_known((long)value))
        return gp_fail(err, code, "%s is %" PRIu64 ", which is no status known to this version", field->name,
                       value);
    return GP_OK;
}

gp_status gp_value_check_signed(const gp_field *field, int64_t value, gp_status code, gp_error *err)
{
    if (value < field->imin || value > field->imax)
        return gp_fail(err, code, "%s is %" PRId64 "; it must be in [%" PRId64 ", %" PRId64 "]", field->name,
                       value, field->imin, field->imax);
    return GP_OK;
}

gp_status gp_value_check_float(const gp_field *field, double value, gp_status code, gp_error *err)
{
    if (field->special == GP_ANY_FLOAT || (field->special == GP_OR_NAN && isnan(value)))
        return GP_OK;
    if (!(value >= field->fmin && value <= field->fmax)) /* also refuses NaN */
        return gp_fail(err, code, "%s is %g; it must be in [%g, %g]", field->name, value, field->fmin,
                       field->fmax);
    return GP_OK;
}
