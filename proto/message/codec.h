/* codec.h -- a message is one field table: encode, decode, range check and fuzz seeds read it.
 *
 * On the wire a body is a msgpack map keyed by field name.  Encoding checks ranges too: what a peer would refuse
 * is never sent.  Decoding trusts nothing: gp_msgpack_validate() runs first, unknown keys are skipped, a
 * duplicate key is refused, a missing field is an error unless its table gives a default.  No function here
 * keeps state; all may be called from any thread. */
#ifndef GP_CODEC_H
#define GP_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "proto/message/limits.h"

typedef enum gp_field_kind {
    GP_KIND_END,    /* ends a table */
    GP_KIND_BOOL,   /* bool */
    GP_KIND_U32,    /* uint32_t in [umin, umax] */
    GP_KIND_STATUS, /* the same, and a known gp_status */
    GP_KIND_U64,    /* uint64_t in [umin, umax] */
    GP_KIND_I32,    /* int32_t in [imin, imax] */
    GP_KIND_I64,    /* int64_t in [imin, imax] */
    GP_KIND_F64,    /* double in [fmin, fmax]; NaN and infinities as `special` says */
    GP_KIND_TEXT,   /* char[size], NUL-terminated UTF-8 without inner NULs; `prose` as below */
    GP_KIND_BIN16,  /* uint8_t[16] */
    GP_KIND_STRUCT, /* a struct of `size` bytes with its own table */
    GP_KIND_LIST,   /* struct[count_max] of `size` bytes each; uint32_t count at count_offset */
} gp_field_kind;

typedef enum gp_field_special { GP_FINITE, GP_OR_NAN, GP_ANY_FLOAT } gp_field_special;

typedef struct gp_field {
    const char *name;
    gp_field_kind kind;
    size_t offset, size;
    uint64_t umin, umax;
    int64_t imin, imax;
    double fmin, fmax;
    gp_field_special special;
    size_t count_offset;
    uint32_t count_max;
    const struct gp_field *fields; /* of STRUCT and LIST */
    bool prose;    /* TEXT for people: bytes that are not UTF-8 are sent as '?', not refused */
    bool optional; /* U32, U64, F64: when missing, the value is `fallback`; BIN16: zeros; TEXT, LIST: empty */
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
/* Finite and in the range; in the range or NaN; any float64. */
#define GP_FIELD_F64(type, member, min, max) { GP_FIELD_AT(type, member), .kind = GP_KIND_F64, .fmin = (min), .fmax = (max) }
#define GP_FIELD_F64_OR_NAN(type, member, min, max) \
    { GP_FIELD_AT(type, member), .kind = GP_KIND_F64, .fmin = (min), .fmax = (max), .special = GP_OR_NAN }
#define GP_FIELD_F64_OPTIONAL(type, member, min, max, missing) \
    { GP_FIELD_AT(type, member), .kind = GP_KIND_F64, .fmin = (min), .fmax = (max), .optional = true, .fallback = (missing) }
#define GP_FIELD_F64_ANY(type, member)       { GP_FIELD_AT(type, member), .kind = GP_KIND_F64, .special = GP_ANY_FLOAT }
#define GP_FIELD_TEXT(type, member)          { GP_FIELD_AT(type, member), .kind = GP_KIND_TEXT }
#define GP_FIELD_TEXT_OPTIONAL(type, member) { GP_FIELD_AT(type, member), .kind = GP_KIND_TEXT, .optional = true }
#define GP_FIELD_PROSE(type, member)         { GP_FIELD_AT(type, member), .kind = GP_KIND_TEXT, .prose = true }
#define GP_FIELD_BIN16(type, member)         { GP_FIELD_AT(type, member), .kind = GP_KIND_BIN16 }
#define GP_FIELD_BIN16_OPTIONAL(type, member) { GP_FIELD_AT(type, member), .kind = GP_KIND_BIN16, .optional = true }
#define GP_FIELD_STRUCT(type, member, table) { GP_FIELD_AT(type, member), .kind = GP_KIND_STRUCT, .fields = (table) }
#define GP_FIELD_LIST(type, member, table, max) \
    { .name = #member, .offset = offsetof(type, member), .size = sizeof(((type *)0)->member[0]), .kind = GP_KIND_LIST, \
      .count_offset = offsetof(type, member##_count), .count_max = (max), .fields = (table) }
#define GP_FIELD_LIST_OPTIONAL(type, member, table, max) \
    { .name = #member, .offset = offsetof(type, member), .size = sizeof(((type *)0)->member[0]), .kind = GP_KIND_LIST, \
      .count_offset = offsetof(type, member##_count), .count_max = (max), .fields = (table), .optional = true }
#define GP_FIELD_END { .kind = GP_KIND_END }
/* clang-format on */

enum { GP_FIELDS_MAX = 32 }; /* fields of one table, checked by a test */

typedef enum gp_direction {
    GP_DIR_ANY,
    GP_DIR_CLIENT_TO_SCHEDULER,
    GP_DIR_SCHEDULER_TO_CLIENT,
    GP_DIR_WORKER_TO_SCHEDULER,
    GP_DIR_SCHEDULER_TO_WORKER,
    GP_DIR_CLIENT_TO_WORKER,
    GP_DIR_WORKER_TO_CLIENT,
} gp_direction;

typedef struct gp_message_type {
    uint32_t id;
    const char *name;
    gp_direction direction;
    size_t size;            /* of the struct */
    const gp_field *fields; /* ended by GP_FIELD_END */
} gp_message_type;

/* First frame of every message: [protocol, message, correlation, epoch, lease, generation, session, seq, ack].
 * 0 = not applicable. */
typedef struct gp_envelope {
    uint32_t protocol;    /* 0 on sending = GP_PROTOCOL */
    uint32_t message;     /* id; filled in by gp_channel_send() */
    uint64_t correlation; /* chosen by who asks, repeated in the answer; 0 = no answer is expected */
    uint64_t epoch;       /* of the scheduler; an older one is refused by its receivers */
    uint64_t lease;
    uint32_t generation;
    uint8_t session[16]; /* of the client; all zero = none */
    uint64_t seq, ack;
} gp_envelope;

/* The type with that id, or NULL. */
const gp_message_type *gp_message_find(uint32_t id);

/* All types in the order of their ids; *count is how many. */
const gp_message_type *const *gp_message_all(size_t *count);

/* gp_message_encode -- append the body of *message, a struct of type->size bytes, to body.
 * GP_EINVAL: a field is out of its range (named, with value and range); body is as it was then.
 * GP_ELIMIT: over body->bytes_max.  GP_ENOMEM. */
gp_status gp_message_encode(gp_buffer *body, const gp_message_type *type, const void *message, gp_error *err);

/* gp_message_decode -- fill *message from the bytes of a body; allocates nothing.
 * GP_EPROTO: not a valid body of this type; the text names the field and the value.  *message is zero then. */
gp_status gp_message_decode(void *message, const gp_message_type *type, const void *bytes, size_t count,
                            gp_error *err);

/* gp_envelope_encode -- append; gp_envelope_decode -- GP_EPROTO when it is not an array of at least nine fields
 * of the right types.  Any protocol number passes: whoever decodes the body compares it (gp_incoming_decode). */
gp_status gp_envelope_encode(gp_buffer *out, const gp_envelope *envelope, gp_error *err);
gp_status gp_envelope_decode(gp_envelope *out, const void *bytes, size_t count, gp_error *err);

/* gp_protocol_choose -- the largest version that both sides speak, from a hello's min and max.
 * GP_EVERSION: there is none; the text names both ranges and which side to update. */
gp_status gp_protocol_choose(uint32_t *out, uint32_t peer_min, uint32_t peer_max, gp_error *err);

/* gp_msgpack_validate -- whether the bytes are exactly one msgpack value within the limits of limits.h: one pass,
 * no recursion, no allocation.  Refused: more than GP_MSGPACK_DEPTH_MAX levels or GP_MSGPACK_NODES_MAX values, a
 * container that claims more than the bytes left can hold, texts over GP_MSGPACK_TEXT_MAX or not UTF-8, ext
 * types, the unused byte 0xc1, trailing bytes.  GP_EPROTO, with the offset. */
gp_status gp_msgpack_validate(const void *bytes, size_t count, gp_error *err);

#endif
