#include "proto/message/value.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    if (!(value >= field->fmin && value <= field->fmax)) /* NaN too */
        return gp_fail(err, code, "%s is %g; it must be in [%g, %g]", field->name, value, field->fmin,
                       field->fmax);
    return GP_OK;
}

/* ---- the log dump ---- */

typedef struct text_out {
    char *text;
    size_t bytes, used; /* used counts what did not fit, too */
} text_out;

__attribute__((format(printf, 2, 3))) static void out_printf(text_out *out, const char *format, ...)
{
    size_t at = out->used < out->bytes ? out->used : out->bytes;
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(out->text + at, out->bytes - at, format, arguments);
    va_end(arguments);
    if (length > 0)
        out->used += (size_t)length;
}

static void out_fields(text_out *out, const gp_field *fields, const void *base);

static void out_value(text_out *out, const gp_field *field, const void *base)
{
    const void *at = gp_value_at(base, field->offset);
    uint32_t count;

    switch (field->kind) {
    case GP_KIND_BOOL:
        out_printf(out, "%s", *(const bool *)at ? "true" : "false");
        break;
    case GP_KIND_U32:
        out_printf(out, "%" PRIu32, *(const uint32_t *)at);
        break;
    case GP_KIND_STATUS:
        out_printf(out, "%s", gp_status_name((gp_status) * (const uint32_t *)at));
        break;
    case GP_KIND_U64:
        out_printf(out, "%" PRIu64, *(const uint64_t *)at);
        break;
    case GP_KIND_I32:
        out_printf(out, "%" PRId32, *(const int32_t *)at);
        break;
    case GP_KIND_I64:
        out_printf(out, "%" PRId64, *(const int64_t *)at);
        break;
    case GP_KIND_F64:
        out_printf(out, "%.9g", *(const double *)at);
        break;
    case GP_KIND_TEXT:
        out_printf(out, "\"%.*s\"", (int)field->size, (const char *)at);
        break;
    case GP_KIND_BIN16:
        out_printf(out, "..."); /* a token opens a worker: it is in no log */
        break;
    case GP_KIND_STRUCT:
        out_printf(out, "{");
        out_fields(out, field->fields, at);
        out_printf(out, "}");
        break;
    case GP_KIND_LIST:
        memcpy(&count, gp_value_at(base, field->count_offset), sizeof(count));
        out_printf(out, "[%" PRIu32 "]", count);
        break;
    case GP_KIND_END:
        break;
    }
}

static void out_fields(text_out *out, const gp_field *fields, const void *base)
{
    for (const gp_field *field = fields; field->kind != GP_KIND_END; field++) {
        out_printf(out, "%s%s=", field == fields ? "" : " ", field->name);
        out_value(out, field, base);
    }
}

char *gp_message_format(char *text, size_t bytes, const gp_message_type *type, const void *message)
{
    text_out out = { text, bytes, 0 };

    if (bytes == 0)
        return text;
    out_printf(&out, "%s{", type->name);
    out_fields(&out, type->fields, message);
    out_printf(&out, "}");
    if (out.used >= bytes && bytes > 4)
        memcpy(text + bytes - 4, "...", 4);
    return text;
}
