/* Field-table driven msgpack encoder and decoder.
 *
 * msgpack-c packs. Unpacking is done here: the reader follows the field table over validated bytes,
 * so it needs no allocation and handles only the types that the table names. Tables nest two levels
 * (a slot inside a worker row). Recursion depth follows the tables, never the input. */
#include "proto/message/codec.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <msgpack.h>
#include <string.h>

#include "common/base/printable.h"
#include "proto/message/item.h"

/* ---- ranges, for both directions ---- */

/* Check a value against the range in its field table. On failure return `code` with an error such
 * as "batch is 0; it must be in [1, 1048576]". */
static gp_status check_unsigned(const gp_field *field, uint64_t value, gp_status code, gp_error *err)
{
    if (value < field->umin || value > field->umax)
        return gp_fail(err, code, "%s is %" PRIu64 "; must be between %" PRIu64 " and %" PRIu64, field->name,
                       value, field->umin, field->umax);
    if (field->kind == GP_KIND_STATUS && !gp_status_known((long)value))
        return gp_fail(err, code, "%s is %" PRIu64 ", a status that this version does not know", field->name,
                       value);
    return GP_OK;
}

static gp_status check_signed(const gp_field *field, int64_t value, gp_status code, gp_error *err)
{
    if (value < field->imin || value > field->imax)
        return gp_fail(err, code, "%s is %" PRId64 "; must be between %" PRId64 " and %" PRId64, field->name,
                       value, field->imin, field->imax);
    return GP_OK;
}

static gp_status check_float(const gp_field *field, double value, gp_status code, gp_error *err)
{
    if (field->special == GP_ANY_FLOAT || (field->special == GP_OR_NAN && isnan(value)))
        return GP_OK;
    if (!(value >= field->fmin && value <= field->fmax)) /* also refuses NaN */
        return gp_fail(err, code, "%s is %g; must be between %g and %g", field->name, value, field->fmin,
                       field->fmax);
    return GP_OK;
}

/* Return the member address at this offset. */
static const void *value_at(const void *base, size_t offset)
{
    return (const char *)base + offset;
}

/* ---- encoding ---- */

/* Packer output: a buffer and the first append error. */
typedef struct writer {
    gp_buffer *buffer;
    gp_status status;
    gp_error *err;
} writer;

/* Append bytes for msgpack-c. After the first failure, drop all further bytes. */
static int writer_write(void *context, const char *bytes, size_t count)
{
    writer *out = context;

    if (out->status == GP_OK)
        out->status = gp_buffer_append(out->buffer, bytes, count, out->err);
    return out->status == GP_OK ? 0 : -1;
}

static void text_pack(msgpack_packer *packer, const char *text, size_t length)
{
    msgpack_pack_str(packer, length);
    msgpack_pack_str_body(packer, text, length);
}

/* Encode a text. GP_EINVAL: not terminated, or not UTF-8 in a field that is not prose. */
static gp_status text_encode(msgpack_packer *packer, const gp_field *field, const char *text, gp_error *err)
{
    size_t length = strnlen(text, field->size);
    char clean[1024];

    if (length == field->size)
        return gp_fail(err, GP_EINVAL, "%s has no NUL within its %zu bytes", field->name, field->size);
    if (!gp_utf8_valid((const uint8_t *)text, length)) {
        if (!field->prose)
            return gp_fail(err, GP_EINVAL, "%s is not UTF-8; use a name in UTF-8", field->name);
        assert(length <= sizeof(clean));
        memcpy(clean, text, length);
        gp_utf8_clean(clean, length);
        text = clean;
    }
    text_pack(packer, text, length);
    return GP_OK;
}

static gp_status fields_encode(msgpack_packer *packer, const gp_field *fields, const void *base,
                               gp_error *err);

/* Encode a list: the element count, then each element as a map. */
static gp_status list_encode(msgpack_packer *packer, const gp_field *field, const void *base, gp_error *err)
{
    const char *element = value_at(base, field->offset);
    gp_status status = GP_OK;
    uint32_t count;

    memcpy(&count, value_at(base, field->count_offset), sizeof(count));
    if (count > field->count_max)
        return gp_fail(err, GP_EINVAL, "%s has %" PRIu32 " elements; at most %" PRIu32 " are allowed",
                       field->name, count, field->count_max);
    msgpack_pack_array(packer, count);
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        status = fields_encode(packer, field->fields, element + i * field->size, err);
        if (status != GP_OK)
            gp_error_prefix(err, "%s[%" PRIu32 "]", field->name, i);
    }
    return status;
}

/* Check and encode one member of the struct at `base`. */
static gp_status value_encode(msgpack_packer *packer, const gp_field *field, const void *base, gp_error *err)
{
    const void *at = value_at(base, field->offset);
    gp_status status = GP_OK;

    switch (field->kind) {
    case GP_KIND_BOOL:
        *(const bool *)at ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
        break;
    case GP_KIND_U32:
    case GP_KIND_STATUS:
        status = check_unsigned(field, *(const uint32_t *)at, GP_EINVAL, err);
        msgpack_pack_uint32(packer, *(const uint32_t *)at);
        break;
    case GP_KIND_U64:
        status = check_unsigned(field, *(const uint64_t *)at, GP_EINVAL, err);
        msgpack_pack_uint64(packer, *(const uint64_t *)at);
        break;
    case GP_KIND_I32:
        status = check_signed(field, *(const int32_t *)at, GP_EINVAL, err);
        msgpack_pack_int32(packer, *(const int32_t *)at);
        break;
    case GP_KIND_I64:
        status = check_signed(field, *(const int64_t *)at, GP_EINVAL, err);
        msgpack_pack_int64(packer, *(const int64_t *)at);
        break;
    case GP_KIND_F64:
        status = check_float(field, *(const double *)at, GP_EINVAL, err);
        msgpack_pack_double(packer, *(const double *)at);
        break;
    case GP_KIND_TEXT:
        status = text_encode(packer, field, at, err);
        break;
    case GP_KIND_BIN16:
        msgpack_pack_bin(packer, 16);
        msgpack_pack_bin_body(packer, at, 16);
        break;
    case GP_KIND_STRUCT:
        status = fields_encode(packer, field->fields, at, err);
        if (status != GP_OK)
            gp_error_prefix(err, "%s", field->name);
        break;
    case GP_KIND_LIST:
        status = list_encode(packer, field, base, err);
        break;
    case GP_KIND_END:
        break;
    }
    return status;
}

/* Encode the struct at `base` as a map with one pair per table entry. */
static gp_status fields_encode(msgpack_packer *packer, const gp_field *fields, const void *base,
                               gp_error *err)
{
    gp_status status = GP_OK;
    size_t count = 0;

    while (fields[count].kind != GP_KIND_END)
        count++;
    msgpack_pack_map(packer, count);
    for (const gp_field *field = fields; field->kind != GP_KIND_END && status == GP_OK; field++) {
        text_pack(packer, field->name, strlen(field->name));
        status = value_encode(packer, field, base, err);
    }
    return status;
}

/* Return the first encoding error; on an error, truncate the buffer to bytes_before. */
static gp_status encode_finish(writer *out, size_t bytes_before, gp_status status)
{
    if (status == GP_OK)
        status = out->status;
    if (status != GP_OK && out->buffer->data != NULL) {
        out->buffer->bytes = bytes_before;
        out->buffer->data[bytes_before] = '\0';
    }
    return status;
}

gp_status gp_message_encode(gp_buffer *body, const gp_message_type *type, const void *message, gp_error *err)
{
    writer out = { body, GP_OK, err };
    size_t bytes_before = body->bytes;
    msgpack_packer packer;

    msgpack_packer_init(&packer, &out, writer_write);
    gp_status status = fields_encode(&packer, type->fields, message, err);

    status = encode_finish(&out, bytes_before, status);
    if (status != GP_OK)
        gp_error_prefix(err, "message %s", type->name);
    return status;
}

gp_status gp_envelope_encode(gp_buffer *buffer, const gp_envelope *envelope, gp_error *err)
{
    writer out = { buffer, GP_OK, err };
    size_t bytes_before = buffer->bytes;
    msgpack_packer packer;

    msgpack_packer_init(&packer, &out, writer_write);
    msgpack_pack_array(&packer, 9);
    msgpack_pack_uint32(&packer, envelope->protocol == 0 ? GP_PROTOCOL : envelope->protocol);
    msgpack_pack_uint32(&packer, envelope->message);
    msgpack_pack_uint64(&packer, envelope->correlation);
    msgpack_pack_uint64(&packer, envelope->epoch);
    msgpack_pack_uint64(&packer, envelope->lease);
    msgpack_pack_uint32(&packer, envelope->generation);
    msgpack_pack_bin(&packer, sizeof(envelope->session));
    msgpack_pack_bin_body(&packer, envelope->session, sizeof(envelope->session));
    msgpack_pack_uint64(&packer, envelope->seq);
    msgpack_pack_uint64(&packer, envelope->ack);
    return encode_finish(&out, bytes_before, GP_OK);
}

/* ---- decoding ---- */

static const char *item_kind_name(gp_item_kind kind)
{
    static const char *const names[] = { "nil",     "a boolean", "a number",    "a negative number",
                                         "a float", "a text",    "binary data", "a list",
                                         "a map" };

    return names[kind];
}

static gp_status type_fail(const gp_field *field, const gp_item *item, const char *expected, gp_error *err)
{
    return gp_fail(err, GP_EPROTO, "%s is %s; must be %s", field->name, item_kind_name(item->kind), expected);
}

/* Check an unsigned item and store it at `at`, in the width of the field. */
static gp_status unsigned_decode(const gp_field *field, const gp_item *item, void *at, gp_error *err)
{
    if (item->kind != GP_ITEM_UNSIGNED)
        return type_fail(field, item, "a number of 0 or more", err);
    gp_status status = check_unsigned(field, item->u, GP_EPROTO, err);

    if (status != GP_OK)
        return status;
    if (field->kind == GP_KIND_U64)
        *(uint64_t *)at = item->u;
    else
        /* umax is at most UINT32_MAX (checked by test_codec.c) */
        *(uint32_t *)at = (uint32_t)item->u;
    return GP_OK;
}

static gp_status signed_decode(const gp_field *field, const gp_item *item, void *at, gp_error *err)
{
    if (item->kind != GP_ITEM_NEGATIVE && (item->kind != GP_ITEM_UNSIGNED || item->u > INT64_MAX))
        return type_fail(field, item, "an integer", err);
    int64_t value = item->kind == GP_ITEM_NEGATIVE ? item->i : (int64_t)item->u;
    gp_status status = check_signed(field, value, GP_EPROTO, err);

    if (status != GP_OK)
        return status;
    if (field->kind == GP_KIND_I64)
        *(int64_t *)at = value;
    else
        *(int32_t *)at = (int32_t)value;
    return GP_OK;
}

/* Decode a double. Integers are accepted too: many msgpack libraries pack 1.0 as 1. */
static gp_status float_decode(const gp_field *field, const gp_item *item, double *at, gp_error *err)
{
    double value = item->f;

    if (item->kind == GP_ITEM_UNSIGNED)
        value = (double)item->u;
    else if (item->kind == GP_ITEM_NEGATIVE)
        value = (double)item->i;
    else if (item->kind != GP_ITEM_FLOAT)
        return type_fail(field, item, "a number", err);
    gp_status status = check_float(field, value, GP_EPROTO, err);

    if (status == GP_OK)
        *at = value;
    return status;
}

/* Copy a text to `at`. GP_EPROTO: too long for the field, or a NUL inside. */
static gp_status text_decode(const gp_field *field, const gp_item *item, char *at, gp_error *err)
{
    if (item->kind != GP_ITEM_TEXT)
        return type_fail(field, item, "a text", err);
    if (item->count >= field->size)
        return gp_fail(err, GP_EPROTO, "%s has %" PRIu32 " bytes; at most %zu are allowed", field->name,
                       item->count, field->size - 1);
    if (item->count != 0 && memchr(item->data, 0, item->count) != NULL)
        return gp_fail(err, GP_EPROTO, "%s contains a NUL byte", field->name);
    memcpy(at, item->data, item->count); /* the array was zeroed before */
    return GP_OK;
}

static gp_status fields_decode(gp_cursor *cursor, const gp_item *map, const gp_field *fields, void *base,
                               gp_error *err);

/* Decode the elements of an array whose head has been read, and set the element counter. */
static gp_status list_decode(gp_cursor *cursor, const gp_item *array, const gp_field *field, void *base,
                             gp_error *err)
{
    char *element = (char *)base + field->offset;

    if (array->kind != GP_ITEM_ARRAY)
        return type_fail(field, array, "a list", err);
    if (array->count > field->count_max)
        return gp_fail(err, GP_EPROTO, "%s has %" PRIu32 " elements; at most %" PRIu32 " are allowed",
                       field->name, array->count, field->count_max);
    for (uint32_t i = 0; i < array->count; i++) {
        gp_status status = GP_EPROTO;
        gp_item item;
        const char *wrong = gp_item_read(cursor, &item);

        if (wrong != NULL || item.kind != GP_ITEM_MAP)
            gp_fail(err, GP_EPROTO, "%s", wrong != NULL ? wrong : "must be a map");
        else
            status = fields_decode(cursor, &item, field->fields, element + i * field->size, err);
        if (status != GP_OK) {
            gp_error_prefix(err, "%s[%" PRIu32 "]", field->name, i);
            return status;
        }
    }
    memcpy((char *)base + field->count_offset, &array->count, sizeof(array->count));
    return GP_OK;
}

/* Read the next value and store it in the member that `field` describes. */
static gp_status value_decode(gp_cursor *cursor, const gp_field *field, void *base, gp_error *err)
{
    void *at = (char *)base + field->offset;
    gp_item item;
    const char *wrong = gp_item_read(cursor, &item);
    gp_status status;

    if (wrong != NULL)
        return gp_fail(err, GP_EPROTO, "%s: %s", field->name, wrong);
    switch (field->kind) {
    case GP_KIND_BOOL:
        if (item.kind != GP_ITEM_BOOL)
            return type_fail(field, &item, "a boolean", err);
        *(bool *)at = item.boolean;
        return GP_OK;
    case GP_KIND_U32:
    case GP_KIND_STATUS:
    case GP_KIND_U64:
        return unsigned_decode(field, &item, at, err);
    case GP_KIND_I32:
    case GP_KIND_I64:
        return signed_decode(field, &item, at, err);
    case GP_KIND_F64:
        return float_decode(field, &item, at, err);
    case GP_KIND_TEXT:
        return text_decode(field, &item, at, err);
    case GP_KIND_BIN16:
        if (item.kind != GP_ITEM_BIN || item.count != 16)
            return gp_fail(err, GP_EPROTO, "%s must be 16 bytes of binary data", field->name);
        memcpy(at, item.data, 16);
        return GP_OK;
    case GP_KIND_STRUCT:
        if (item.kind != GP_ITEM_MAP)
            return type_fail(field, &item, "a map", err);
        status = fields_decode(cursor, &item, field->fields, at, err);
        if (status != GP_OK)
            gp_error_prefix(err, "%s", field->name);
        return status;
    case GP_KIND_LIST:
        return list_decode(cursor, &item, field, base, err);
    case GP_KIND_END:
        break;
    }
    return gp_fail(err, GP_EINTERNAL, "internal error: field %s has unknown kind %d", field->name,
                   (int)field->kind);
}

/* Set each field whose bit is not in `seen` to its default. GP_EPROTO: a required field is
 * missing. */
static gp_status missing_fill(const gp_field *fields, uint32_t seen, void *base, gp_error *err)
{
    for (unsigned i = 0; fields[i].kind != GP_KIND_END; i++) {
        void *at = (char *)base + fields[i].offset;

        if (seen >> i & 1)
            continue;
        if (!fields[i].optional)
            return gp_fail(err, GP_EPROTO, "%s is missing", fields[i].name);
        if (fields[i].kind == GP_KIND_U64)
            *(uint64_t *)at = fields[i].fallback;
        else if (fields[i].kind == GP_KIND_F64)
            *(double *)at = (double)fields[i].fallback;
        else if (fields[i].kind == GP_KIND_BIN16)
            memset(at, 0, 16);
        else if (fields[i].kind == GP_KIND_TEXT)
            memset(at, 0, fields[i].size);
        else if (fields[i].kind == GP_KIND_LIST)
            *(uint32_t *)((char *)base + fields[i].count_offset) = 0;
        else
            *(uint32_t *)at = (uint32_t)fields[i].fallback;
    }
    return GP_OK;
}

/* Decode key-value pairs into the struct at `base`. The caller has read the map head. */
static gp_status fields_decode(gp_cursor *cursor, const gp_item *map, const gp_field *fields, void *base,
                               gp_error *err)
{
    uint32_t seen = 0; /* bit i: field i was present; GP_FIELDS_MAX is 32 */

    for (uint32_t pair = 0; pair < map->count; pair++) {
        gp_status status;
        gp_item key;
        const char *wrong = gp_item_read(cursor, &key);

        if (wrong != NULL || key.kind != GP_ITEM_TEXT)
            return gp_fail(err, GP_EPROTO, "%s", wrong != NULL ? wrong : "a key is not a text");
        unsigned i = 0;

        while (fields[i].kind != GP_KIND_END &&
               (strlen(fields[i].name) != key.count || memcmp(fields[i].name, key.data, key.count) != 0))
            i++;
        if (fields[i].kind == GP_KIND_END) { /* unknown key, sent by a newer version */
            wrong = gp_item_skip(cursor);
            if (wrong != NULL)
                return gp_fail(err, GP_EPROTO, "%s", wrong);
            continue;
        }
        if (seen >> i & 1)
            return gp_fail(err, GP_EPROTO, "%s is present twice", fields[i].name);
        seen |= 1u << i;
        status = value_decode(cursor, &fields[i], base, err);
        if (status != GP_OK)
            return status;
    }
    return missing_fill(fields, seen, base, err);
}

gp_status gp_message_decode(void *message, const gp_message_type *type, const void *bytes, size_t count,
                            gp_error *err)
{
    gp_status status = gp_msgpack_validate(bytes, count, err);

    memset(message, 0, type->size);
    if (status == GP_OK) {
        gp_cursor cursor = { bytes, (const uint8_t *)bytes + count };
        gp_item map;

        gp_item_read(&cursor, &map); /* cannot fail: the bytes are validated */
        if (map.kind != GP_ITEM_MAP)
            status = gp_fail(err, GP_EPROTO, "the body is %s; must be a map", item_kind_name(map.kind));
        else
            status = fields_decode(&cursor, &map, type->fields, message, err);
    }
    if (status != GP_OK) {
        memset(message, 0, type->size);
        gp_error_prefix(err, "message %s", type->name);
    }
    return status;
}

/* Read the next unsigned number from an envelope. Return false if it is missing or greater than
 * `max`. */
static bool unsigned_read(gp_cursor *cursor, uint64_t max, uint64_t *out)
{
    gp_item item;

    if (gp_item_read(cursor, &item) != NULL || item.kind != GP_ITEM_UNSIGNED || item.u > max)
        return false;
    *out = item.u;
    return true;
}

gp_status gp_envelope_decode(gp_envelope *out, const void *bytes, size_t count, gp_error *err)
{
    gp_status status = gp_msgpack_validate(bytes, count, err);
    gp_cursor cursor = { bytes, (const uint8_t *)bytes + count };
    uint64_t protocol, message, generation;
    gp_envelope read = { 0 };
    gp_item item;

    if (status != GP_OK)
        return status;
    if (count > GP_ENVELOPE_BYTES_MAX)
        return gp_fail(err, GP_EPROTO, "malformed envelope: %zu bytes, at most %u are allowed", count,
                       GP_ENVELOPE_BYTES_MAX);
    gp_item_read(&cursor, &item);
    if (item.kind != GP_ITEM_ARRAY || item.count < 9)
        return gp_fail(err, GP_EPROTO, "malformed envelope: not a list of at least nine fields");
    if (!unsigned_read(&cursor, GP_PROTOCOL_MAX, &protocol) ||
        !unsigned_read(&cursor, UINT32_MAX, &message) ||
        !unsigned_read(&cursor, UINT64_MAX, &read.correlation) ||
        !unsigned_read(&cursor, UINT64_MAX, &read.epoch) ||
        !unsigned_read(&cursor, UINT64_MAX, &read.lease) || !unsigned_read(&cursor, UINT32_MAX, &generation))
        return gp_fail(err, GP_EPROTO, "malformed envelope: a field is out of range");
    if (gp_item_read(&cursor, &item) != NULL || item.kind != GP_ITEM_BIN || item.count != 16)
        return gp_fail(err, GP_EPROTO, "malformed envelope: the session is not 16 bytes of binary data");
    memcpy(read.session, item.data, 16);
    if (!unsigned_read(&cursor, UINT64_MAX, &read.seq) || !unsigned_read(&cursor, UINT64_MAX, &read.ack))
        return gp_fail(err, GP_EPROTO, "malformed envelope: seq or ack is not a number");
    read.protocol = (uint32_t)protocol;
    read.message = (uint32_t)message;
    read.generation = (uint32_t)generation;
    if (read.protocol == 0)
        return gp_fail(err, GP_EPROTO, "malformed envelope: protocol 0");
    *out = read;
    return GP_OK;
}

gp_status gp_protocol_choose(uint32_t *out, uint32_t peer_min, uint32_t peer_max, gp_error *err)
{
    uint32_t common = peer_max < GP_PROTOCOL ? peer_max : GP_PROTOCOL;

    if (peer_min > peer_max)
        return gp_fail(err, GP_EVERSION, "invalid range of protocol versions: %" PRIu32 " to %" PRIu32,
                       peer_min, peer_max);
    if (common < peer_min || common < GP_PROTOCOL_MIN)
        return gp_fail(err, GP_EVERSION,
                       "no common protocol version: the client supports %" PRIu32 " to %" PRIu32
                       ", the daemon %u to %u",
                       peer_min, peer_max, GP_PROTOCOL_MIN, GP_PROTOCOL);
    *out = common;
    return GP_OK;
}
