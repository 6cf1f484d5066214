/* Generate sample messages from the field tables (samples.h). */
#include "tests/proto/message/samples.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/error.h"

static void fields_fill(const gp_field *fields, char *base, unsigned variant, unsigned salt);

static uint64_t unsigned_pick(const gp_field *field, unsigned variant, unsigned salt)
{
    if (variant == 0)
        return field->umin;
    if (variant == 1)
        return field->kind == GP_KIND_STATUS ? GP_EINTERNAL : field->umax;
    uint64_t span = field->umax - field->umin, wanted = 1 + 3 * (uint64_t)salt;

    if (field->kind == GP_KIND_STATUS)
        return GP_EPEER;
    return field->umin + (span == UINT64_MAX ? wanted : wanted % (span + 1));
}

static int64_t signed_pick(const gp_field *field, unsigned variant, unsigned salt)
{
    return variant == 0 ? field->imin : variant == 1 ? field->imax : (salt % 2 ? -1 : 1);
}

static double float_pick(const gp_field *field, unsigned variant, unsigned salt)
{
    if (field->special == GP_ANY_FLOAT)
        return variant == 0 ? -INFINITY : variant == 1 ? NAN : 2.302585092994046;
    if (field->special == GP_OR_NAN && variant == 1)
        return NAN;
    return variant == 0   ? field->fmin
           : variant == 1 ? field->fmax
                          : field->fmin + (field->fmax - field->fmin) / (2 + salt);
}

static void text_fill(const gp_field *field, char *at, unsigned variant)
{
    memset(at, 0, field->size);
    if (variant == 1)
        memset(at, 'x', field->size - 1);
    else if (variant == 2)
        snprintf(at, field->size, "%s \xc3\xa9\xe2\x82\xac", field->name);
}

static void value_fill(const gp_field *field, char *base, unsigned variant, unsigned salt)
{
    char *at = base + field->offset;
    uint32_t count = variant == 0 ? 0 : variant == 1 ? field->count_max : 2;

    switch (field->kind) {
    case GP_KIND_BOOL:
        *(bool *)at = variant != 0;
        break;
    case GP_KIND_U32:
    case GP_KIND_STATUS:
        *(uint32_t *)at = (uint32_t)unsigned_pick(field, variant, salt);
        break;
    case GP_KIND_U64:
        *(uint64_t *)at = unsigned_pick(field, variant, salt);
        break;
    case GP_KIND_I32:
        *(int32_t *)at = (int32_t)signed_pick(field, variant, salt);
        break;
    case GP_KIND_I64:
        *(int64_t *)at = signed_pick(field, variant, salt);
        break;
    case GP_KIND_F64:
        *(double *)at = float_pick(field, variant, salt);
        break;
    case GP_KIND_TEXT:
        text_fill(field, at, variant);
        break;
    case GP_KIND_BIN16:
        for (unsigned i = 0; i < 16; i++)
            at[i] = (char)(variant == 0 ? 0 : variant == 1 ? 255 : i * 17);
        break;
    case GP_KIND_STRUCT:
        fields_fill(field->fields, at, variant, salt + 1);
        break;
    case GP_KIND_LIST:
        memcpy(base + field->count_offset, &count, sizeof(count));
        for (uint32_t i = 0; i < count; i++)
            fields_fill(field->fields, at + i * field->size, variant, salt + 1 + i);
        break;
    case GP_KIND_END:
        break;
    }
}

static void fields_fill(const gp_field *fields, char *base, unsigned variant, unsigned salt)
{
    for (const gp_field *field = fields; field->kind != GP_KIND_END; field++)
        value_fill(field, base, variant, salt + (unsigned)(field - fields));
}

void sample_fill(const gp_message_type *type, void *message, unsigned variant)
{
    memset(message, 0, type->size);
    fields_fill(type->fields, message, variant, 0);
}

gp_envelope sample_envelope(const gp_message_type *type)
{
    gp_envelope envelope = { .protocol = GP_PROTOCOL,
                             .message = type->id,
                             .correlation = 0x0102030405060708ull,
                             .epoch = 3,
                             .lease = 70000,
                             .generation = 2,
                             .seq = 300,
                             .ack = 299 };

    for (unsigned i = 0; i < 16; i++)
        envelope.session[i] = (uint8_t)(0xa0 + i);
    return envelope;
}

void *sample_new(void)
{
    size_t count, largest = 0;
    const gp_message_type *const *types = gp_message_all(&count);

    for (size_t i = 0; i < count; i++)
        largest = types[i]->size > largest ? types[i]->size : largest;
    return gp_calloc(1, largest);
}
