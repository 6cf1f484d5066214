/* Encode and decode message bodies and envelopes (msgpack) from field tables.
 *
 * A field table describes one struct: for each member the name, kind, offset, range and default.
 * Encoder, decoder, range checks and fuzz seeds all read the same table.
 *
 * On the wire a body is a msgpack map keyed by field name. Encoding checks ranges too, so a message
 * that the peer would refuse is never sent. Decoding trusts no input:
 *
 * - gp_msgpack_validate() checks the bytes first.
 * - An unknown key is skipped; a duplicate key is an error.
 * - A missing field is an error unless the table makes it optional.
 *
 * The functions keep no state and may be called from any thread. */
#ifndef GP_CODEC_H
#define GP_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "proto/message/limits.h"

typedef enum gp_field_kind {
    GP_KIND_END,    /* terminates a table */
    GP_KIND_BOOL,   /* bool */
    GP_KIND_U32,    /* uint32_t in [umin, umax] */
    GP_KIND_STATUS, /* uint32_t in [umin, umax] that is also a known gp_status */
    GP_KIND_U64,    /* uint64_t in [umin, umax] */
    GP_KIND_I32,    /* int32_t in [imin, imax] */
    GP_KIND_I64,    /* int64_t in [imin, imax] */
    GP_KIND_F64,    /* double in [fmin, fmax]; see gp_field_special for NaN and infinity */
    GP_KIND_TEXT,   /* char[size], NUL-terminated UTF-8; see also gp_field.prose */
    GP_KIND_BIN16,  /* uint8_t[16] */
    GP_KIND_STRUCT, /* nested struct, `size` bytes, described by `fields` */
    GP_KIND_LIST,   /* struct[count_max], `size` bytes each; uint32_t count at count_offset */
} gp_field_kind;

/* Values that an F64 field accepts: finite numbers in the range; those and NaN; any double. */
typedef enum gp_field_special { GP_FINITE, GP_OR_NAN, GP_ANY_FLOAT } gp_field_special;

/* Struct member description. The GP_FIELD_ macros below build these entries. */
typedef struct gp_field {
    const char *name;
    gp_field_kind kind;

    /* Position of the member in the struct, and size of the member, or of one element for LIST. */
    size_t offset, size;

    /* Allowed range, by kind: unsigned, signed or floating point. */
    uint64_t umin, umax;
    int64_t imin, imax;
    double fmin, fmax;
    gp_field_special special;

    /* For LIST: element counter offset and array capacity. */
    size_t count_offset;
    uint32_t count_max;
    const struct gp_field *fields; /* element table, for STRUCT and LIST */
    bool prose;                    /* TEXT for people: invalid UTF-8 is replaced by '?' */

    /* The field may be missing. The decoder then sets U32, U64 and F64 to `fallback`, BIN16 to
     * zeros, TEXT and LIST to empty. */
    bool optional;
    uint64_t fallback;
} gp_field;

/* clang-format off */
#define GP_FIELD_AT(type, member) .name = #member, .offset = offsetof(type, member), \
                                  .size = sizeof(((type *)0)->member)
#define GP_FIELD_BOOL(type, member)          { GP_FIELD_AT(type, member), .kind = GP_KIND_BOOL }
#define GP_FIELD_U32(type, member, min, max) { GP_FIELD_AT(type, member), .kind = GP_KIND_U32, .umin = (min), .umax = (max) }
#define GP_FIELD_STATUS(type, member, min)   { GP_FIELD_AT(type, member), .kind = GP_KIND_STATUS, .umin = (min), .umax = UINT32_MAX }
#define GP_FIELD_U64(type, member, min, max) { GP_FIELD_AT(type, member), .kind = GP_KIND_U64, .umin = (min), .umax = (max) }
#define GP_FIELD_U32_OPTIONAL(type, member, min, max, missing) \
    { GP_FIELD_AT(type, member), .kind = GP_KIND_U32, .umin = (min), .umax = (max), .optional = true, .fallback = (missing) }
#define GP_FIELD_U64_OPTIONAL(type, member, min, max, missing) \
    { GP_FIELD_AT(type, member), .kind = GP_KIND_U64, .umin = (min), .umax = (max), .optional = true, .fallback = (missing) }
#define GP_FIELD_I32(type, member, min, max) { GP_FIELD_AT(type, member), .kind = GP_KIND_I32, .imin = (min), .imax = (max) }
#define GP_FIELD_I64(type, member, min, max) { GP_FIELD_AT(type, member), .kind = GP_KIND_I64, .imin = (min), .imax = (max) }

/* F64: finite and in [min, max]. F64_OR_NAN: in [min, max] or NaN. F64_ANY: any double. */
#define GP_FIELD_F64(type, member, min, max) { GP_FIELD_AT(type, member), .kind = GP_KIND_F64, .fmin = (min), .fmax = (max) }
#define GP_FIELD_F64_OR_NAN(type, member, min, max) \
    { GP_FIELD_AT(type, member), .kind = GP_KIND_F64, .fmin = (min), .fmax = (max), .special = GP_OR_NAN }
#define GP_FIELD_F64_OPTIONAL(type, member, min, max, missing) \
    { GP_FIELD_AT(type, member), .kind = GP_KIND_F64, .fmin = (min), .fmax = (max), .optional = true, .fallback = (missing) }
#define GP_FIELD_F64_ANY(type, member)       { GP_FIELD_AT(type, member), .kind = GP_KIND_F64, .special = GP_ANY_FLOAT }
#define GP_FIELD_TEXT(type, member, bytes)   { GP_FIELD_AT(type, member), .kind = GP_KIND_TEXT }
#define GP_FIELD_TEXT_OPTIONAL(type, member, bytes) { GP_FIELD_AT(type, member), .kind = GP_KIND_TEXT, .optional = true }
#define GP_FIELD_PROSE(type, member, bytes)  { GP_FIELD_AT(type, member), .kind = GP_KIND_TEXT, .prose = true }
#define GP_FIELD_BIN16(type, member)         { GP_FIELD_AT(type, member), .kind = GP_KIND_BIN16 }
#define GP_FIELD_BIN16_OPTIONAL(type, member) { GP_FIELD_AT(type, member), .kind = GP_KIND_BIN16, .optional = true }
#define GP_FIELD_STRUCT(type, member, element) { GP_FIELD_AT(type, member), .kind = GP_KIND_STRUCT, .fields = element##_fields }
#define GP_FIELD_LIST(type, member, element, max) \
    { .name = #member, .offset = offsetof(type, member), .size = sizeof(((type *)0)->member[0]), .kind = GP_KIND_LIST, \
      .count_offset = offsetof(type, member##_count), .count_max = (max), .fields = element##_fields }
#define GP_FIELD_LIST_OPTIONAL(type, member, element, max) \
    { .name = #member, .offset = offsetof(type, member), .size = sizeof(((type *)0)->member[0]), .kind = GP_KIND_LIST, \
      .count_offset = offsetof(type, member##_count), .count_max = (max), .fields = element##_fields, .optional = true }
#define GP_FIELD_END { .kind = GP_KIND_END }

/* clang-format on */

enum { GP_FIELDS_MAX = 32 }; /* largest field count in a table; a test checks this */

/* Sender and receiver. */
typedef enum gp_direction {
    GP_DIR_ANY,
    GP_DIR_CLIENT_TO_SCHEDULER,
    GP_DIR_SCHEDULER_TO_CLIENT,
    GP_DIR_WORKER_TO_SCHEDULER,
    GP_DIR_SCHEDULER_TO_WORKER,
    GP_DIR_CLIENT_TO_WORKER,
    GP_DIR_WORKER_TO_CLIENT,
} gp_direction;

/* Message type description; messages.def defines all types. */
typedef struct gp_message_type {
    uint32_t id;
    const char *name;
    gp_direction direction;
    size_t size;            /* C struct size in bytes */
    const gp_field *fields; /* terminated by GP_FIELD_END */
} gp_message_type;

/* First frame of every message, an array: [protocol, message, correlation, epoch, lease,
 * generation, session, seq, ack]. A value of 0 means: not applicable. */
typedef struct gp_envelope {
    uint32_t protocol;    /* protocol version; the encoder replaces 0 by GP_PROTOCOL */
    uint32_t message;     /* message type id; gp_channel_send() fills it in */
    uint64_t correlation; /* chosen by the requester, repeated in the reply; 0: no reply expected */
    uint64_t epoch;       /* scheduler epoch; receivers refuse an older epoch */
    uint64_t lease;
    uint32_t generation;
    uint8_t session[16]; /* client session; all zeros: none */

    /* Request number in the session, from 1, and highest number received without a gap; 0:
     * unused. */
    uint64_t seq, ack;
} gp_envelope;

/* Return the message type with this id; NULL: unknown id. */
const gp_message_type *gp_message_find(uint32_t id);

/* Return all message types, sorted by id, and set *count to their number. */
const gp_message_type *const *gp_message_all(size_t *count);

/* Append the encoded body of *message, a struct with type->size bytes, to `body`. On failure `body`
 * is unchanged.
 *
 * GP_EINVAL: a field is out of range; the error names the field, the value and the range.
 * GP_ELIMIT: the result exceeds body->bytes_max.
 * GP_ENOMEM: no memory. */
gp_status gp_message_encode(gp_buffer *body, const gp_message_type *type, const void *message, gp_error *err);

/* Decode a message body (`count` bytes) into *message, without allocating memory.
 *
 * GP_EPROTO: not a valid body of this type; the error names the field and the value, and *message
 * is zeroed. */
gp_status gp_message_decode(void *message, const gp_message_type *type, const void *bytes, size_t count,
                            gp_error *err);

/* Append the encoded envelope to `out`, or decode one. gp_envelope_decode() accepts any protocol
 * version: gp_incoming_decode() compares the version before it decodes the body.
 *
 * GP_EPROTO: not an array of at least nine fields with the expected types. */
gp_status gp_envelope_encode(gp_buffer *out, const gp_envelope *envelope, gp_error *err);
gp_status gp_envelope_decode(gp_envelope *out, const void *bytes, size_t count, gp_error *err);

/* Select the highest protocol version that both sides support, given the range from the peer's
 * hello.
 *
 * GP_EVERSION: no common version; the error names both ranges. */
gp_status gp_protocol_choose(uint32_t *out, uint32_t peer_min, uint32_t peer_max, gp_error *err);

/* Check that the bytes are exactly one msgpack value within the limits in limits.h. One pass,
 * without recursion or allocation. GP_EPROTO, with the byte offset, for:
 *
 * - more than GP_MSGPACK_DEPTH_MAX levels or GP_MSGPACK_NODES_MAX values
 * - a container that claims more values than bytes are left
 * - a text longer than GP_MSGPACK_TEXT_MAX, or not UTF-8
 * - an ext type, the unused byte 0xc1, or trailing bytes */
gp_status gp_msgpack_validate(const void *bytes, size_t count, gp_error *err);

#endif
