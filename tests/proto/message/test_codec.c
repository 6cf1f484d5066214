/* Field tables and the codec: round trips, range checks and malformed bodies. */
#include <msgpack.h>

#include "proto/message/codec.h"
#include "proto/message/messages.h"
#include "tests/gp_test.h"
#include "tests/proto/message/samples.h"

/* ---- field tables ---- */

/* Check that a table matches the struct: offsets, sizes, ranges and unique names. Return the number
 * of fields. */
static unsigned table_check(const char *name, const gp_field *fields, size_t size, unsigned depth)
{
    unsigned count = 0;

    CHECK(depth < 4);
    for (const gp_field *field = fields; field->kind != GP_KIND_END; field++, count++) {
        size_t ends = field->offset + field->size * (field->kind == GP_KIND_LIST ? field->count_max : 1);

        if (ends > size || strlen(field->name) > 31)
            GP_TEST_FAIL("%s.%s ends at %zu of %zu", name, field->name, ends, size);
        if (field->kind == GP_KIND_U32 && (field->size != 4 || field->umax > UINT32_MAX))
            GP_TEST_FAIL("%s.%s is not u32", name, field->name);
        if ((field->kind == GP_KIND_U64 || field->kind == GP_KIND_I64 || field->kind == GP_KIND_F64) &&
            field->size != 8)
            GP_TEST_FAIL("%s.%s has not 8 bytes", name, field->name);
        if (field->kind == GP_KIND_I32 &&
            (field->size != 4 || field->imin < INT32_MIN || field->imax > INT32_MAX))
            GP_TEST_FAIL("%s.%s is not i32", name, field->name);
        if (field->kind == GP_KIND_BIN16 && field->size != 16)
            GP_TEST_FAIL("%s.%s has not 16 bytes", name, field->name);
        if (field->kind == GP_KIND_TEXT && field->size > 1024)
            GP_TEST_FAIL("%s.%s is longer than the encoder clears", name, field->name);
        if (field->umin > field->umax || field->imin > field->imax || field->fmin > field->fmax)
            GP_TEST_FAIL("%s.%s has an empty range", name, field->name);
        for (const gp_field *other = fields; other != field; other++)
            if (strcmp(other->name, field->name) == 0)
                GP_TEST_FAIL("%s.%s is in the table twice", name, field->name);
        if (field->kind == GP_KIND_STRUCT || field->kind == GP_KIND_LIST)
            table_check(field->name, field->fields, field->size, depth + 1);
    }
    CHECK(count <= GP_FIELDS_MAX);
    return count;
}

TEST(tables_fit_their_structs)
{
    size_t count;
    const gp_message_type *const *types = gp_message_all(&count);

    CHECK(count >= 30);
    for (size_t i = 0; i < count; i++) {
        table_check(types[i]->name, types[i]->fields, types[i]->size, 0);
        CHECK(gp_message_find(types[i]->id) == types[i]);
        if (i > 0 && types[i]->id <= types[i - 1]->id)
            GP_TEST_FAIL("id %u of %s is out of order", types[i]->id, types[i]->name);
    }
    CHECK(gp_message_find(0) == NULL);
    CHECK(gp_message_find(4711) == NULL);
}

/* ---- round trips ---- */

/* Encode, decode and encode again. Both encodings must be identical and fit into a frame, and
 * msgpack-c must be able to read them. */
static void round_trip(const gp_message_type *type, unsigned variant, void *sent, void *got)
{
    gp_buffer first, second;
    gp_error err = { .code = GP_OK };
    msgpack_unpacked tree;
    size_t offset = 0;

    gp_buffer_init(&first, GP_BODY_BYTES_MAX);
    gp_buffer_init(&second, GP_BODY_BYTES_MAX);
    sample_fill(type, sent, variant);
    if (gp_message_encode(&first, type, sent, &err) != GP_OK ||
        gp_message_decode(got, type, first.data, first.bytes, &err) != GP_OK ||
        gp_message_encode(&second, type, got, &err) != GP_OK)
        GP_TEST_FAIL("%s, variant %u: %s", type->name, variant, err.message);
    else if (first.bytes != second.bytes || memcmp(first.data, second.data, first.bytes) != 0)
        GP_TEST_FAIL("%s, variant %u: the second encoding differs", type->name, variant);
    msgpack_unpacked_init(&tree);
    if (msgpack_unpack_next(&tree, (char *)first.data, first.bytes, &offset) != MSGPACK_UNPACK_SUCCESS ||
        offset != first.bytes || tree.data.type != MSGPACK_OBJECT_MAP)
        GP_TEST_FAIL("%s, variant %u: msgpack-c cannot read it", type->name, variant);
    msgpack_unpacked_destroy(&tree);
    gp_buffer_deinit(&first);
    gp_buffer_deinit(&second);
}

TEST(messages_survive_a_round_trip_with_extreme_values)
{
    size_t count;
    const gp_message_type *const *types = gp_message_all(&count);
    void *sent = sample_new(), *got = sample_new();

    for (size_t i = 0; i < count; i++)
        for (unsigned variant = 0; variant < 3; variant++)
            round_trip(types[i], variant, sent, got);
    gp_free(sent);
    gp_free(got);
}

TEST(decode_restores_the_encoded_values)
{
    gp_train_validation sent = { .step = 4,
                                 .epoch = 2,
                                 .loss = NAN,
                                 .accuracy = 0.5,
                                 .count = 10,
                                 .seconds = 1.25 },
                        got;
    gp_buffer body;
    gp_error err;

    gp_buffer_init(&body, GP_BODY_BYTES_MAX);
    REQUIRE_OK(gp_message_encode(&body, &gp_msg_train_validation, &sent, &err), err);
    REQUIRE_OK(gp_message_decode(&got, &gp_msg_train_validation, body.data, body.bytes, &err), err);
    CHECK_INT(4, got.step);
    CHECK_INT(2, got.epoch);
    CHECK(isnan(got.loss));
    CHECK_NEAR(0.5, got.accuracy, 0);
    CHECK_INT(10, got.count);
    CHECK_NEAR(1.25, got.seconds, 0);
    gp_buffer_deinit(&body);
}

/* ---- errors in encoding ---- */

/* Encode a message into a temporary buffer, and check that a failure leaves the buffer empty. */
static gp_status encode_only(const gp_message_type *type, const void *message, gp_error *err)
{
    gp_buffer body;

    gp_buffer_init(&body, GP_BODY_BYTES_MAX);
    gp_status status = gp_message_encode(&body, type, message, err);

    if (status != GP_OK && body.bytes != 0)
        GP_TEST_FAIL("a failed encoding wrote %zu bytes", body.bytes);
    gp_buffer_deinit(&body);
    return status;
}

TEST(encode_refuses_values_out_of_range)
{
    gp_error err;
    gp_predict_ask ask = { .first = 0, .count = 0 };

    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_predict_ask, &ask, &err));
    CHECK_CONTAINS(err.message, "predict_ask: count is 0; must be between 1 and 1048576");
    gp_train_validation validation = { .accuracy = 1.5 };

    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_train_validation, &validation, &err));
    CHECK_CONTAINS(err.message, "accuracy is 1.5");
    gp_predict_part part = { .count = 1, .weight = NAN };

    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_predict_part, &part, &err));
    CHECK_CONTAINS(err.message, "weight");
    gp_lease_ask lease = { .priority = 1001 };

    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_lease_ask, &lease, &err));
    CHECK_CONTAINS(err.message, "priority is 1001");
    gp_error_reply reply = { .code = 4711 };

    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_error_reply, &reply, &err));
    CHECK_CONTAINS(err.message, "a status that this version does not know");
}

TEST(encode_errors_name_the_list_element)
{
    gp_error err;
    gp_lease_grant *grant = gp_calloc(1, sizeof(*grant));

    grant->slots_count = 3;
    for (unsigned i = 0; i < 3; i++)
        grant->slots[i] = (gp_slot){ .index = i + 1, .incarnation = i == 2 ? 0 : 1 };
    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_lease_grant, grant, &err));
    CHECK_CONTAINS(err.message, "slots[2]: incarnation is 0");
    grant->slots_count = GP_MEMBERS_MAX + 1;
    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_lease_grant, grant, &err));
    CHECK_CONTAINS(err.message, "slots has 65 elements");
    gp_free(grant);
}

TEST(encode_refuses_unterminated_texts_and_invalid_utf8)
{
    gp_error err;
    gp_predict_begin begin = { .batch = 1 };

    memset(begin.data, 'x', sizeof(begin.data));
    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_predict_begin, &begin, &err));
    CHECK_CONTAINS(err.message, "data has no NUL");
    strcpy(begin.data, "/tmp/\xff");
    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_predict_begin, &begin, &err));
    CHECK_CONTAINS(err.message, "not UTF-8");
}

TEST(encode_cleans_invalid_utf8_in_prose_fields)
{
    gp_error err;
    gp_revoke sent = { .reason = "cut \xe2\x82" }, got;
    gp_buffer body;

    gp_buffer_init(&body, GP_BODY_BYTES_MAX);
    REQUIRE_OK(gp_message_encode(&body, &gp_msg_revoke, &sent, &err), err);
    REQUIRE_OK(gp_message_decode(&got, &gp_msg_revoke, body.data, body.bytes, &err), err);
    CHECK_TEXT("cut ??", got.reason);
    gp_buffer_deinit(&body);
}

TEST(encode_respects_the_buffer_limit)
{
    gp_error err;
    gp_hello hello = { .role = 1, .protocol_min = 1, .protocol_max = 1, .pid = 1 };
    gp_buffer body;

    gp_buffer_init(&body, 20);
    CHECK_STATUS(GP_ELIMIT, gp_message_encode(&body, &gp_msg_hello, &hello, &err));
    CHECK_INT(0, body.bytes);
    gp_buffer_deinit(&body);
}

static gp_status encode_hello(gp_buffer *body)
{
    gp_hello hello = { .role = 1, .protocol_min = 1, .protocol_max = 1, .pid = 1 };

    gp_buffer_init(body, GP_BODY_BYTES_MAX);
    gp_status status = gp_message_encode(body, &gp_msg_hello, &hello, NULL);

    if (status != GP_OK)
        gp_buffer_deinit(body);
    return status;
}

TEST(encode_survives_allocation_failures)
{
    gp_buffer body;

    CHECK_EVERY_ALLOCATION(encode_hello(&body), gp_buffer_deinit(&body));
}

/* ---- errors in decoding ---- */

/* Check that decoding fails with GP_EPROTO, that the error contains `reason`, and that the struct
 * is zeroed. */
#define DECODE_REFUSED(type, bytes, reason)                                                                  \
    do {                                                                                                     \
        gp_##type got_;                                                                                      \
        gp_##type zero_ = { 0 };                                                                             \
        gp_error err_ = { .code = GP_OK };                                                                   \
        memset(&got_, 0x55, sizeof(got_));                                                                   \
        memset(&zero_, 0, sizeof(zero_));                                                                    \
        CHECK_STATUS(GP_EPROTO, gp_message_decode(&got_, &gp_msg_##type, bytes, sizeof(bytes) - 1, &err_));  \
        CHECK_CONTAINS(err_.message, reason);                                                                \
        CHECK(memcmp(&got_, &zero_, sizeof(got_)) == 0);                                                     \
    } while (0)

TEST(decode_refuses_missing_and_duplicate_fields)
{
    DECODE_REFUSED(predict_ask,
                   "\x81\xa5"
                   "first\x00",
                   "count is missing");
    DECODE_REFUSED(predict_ask, "\x80", "first is missing");
    DECODE_REFUSED(predict_ask,
                   "\x83\xa5"
                   "first\x00\xa5"
                   "count\x01\xa5"
                   "first\x00",
                   "first is present twice");
}

TEST(decode_refuses_wrong_types_and_ranges)
{
    DECODE_REFUSED(predict_ask,
                   "\x82\xa5"
                   "first\xff\xa5"
                   "count\x01",
                   "first is a negative number");
    DECODE_REFUSED(predict_ask,
                   "\x82\xa5"
                   "first\xa1x\xa5"
                   "count\x01",
                   "first is a text");
    DECODE_REFUSED(predict_ask,
                   "\x82\xa5"
                   "first\x00\xa5"
                   "count\x00",
                   "count is 0");
    DECODE_REFUSED(predict_ask,
                   "\x82\xa5"
                   "first\x00\xa5"
                   "count\xcf\x00\x00\x00\x01\x00\x00\x00\x01",
                   "count is 4294967297"); /* would be 1 if truncated to 32 bits */
    DECODE_REFUSED(train_stop, "\x81\xa4hard\x01", "hard is a number; must be a boolean");
    DECODE_REFUSED(attach,
                   "\x82\xa5token\xc4\x02xx\xaa"
                   "client_pid\x01",
                   "16 bytes");
    DECODE_REFUSED(attach,
                   "\x82\xa5token\xb0xxxxxxxxxxxxxxxx\xaa"
                   "client_pid\x01",
                   "16 bytes");
    DECODE_REFUSED(lease_ended,
                   "\x81\xa6reason\xa3"
                   "a\x00"
                   "b",
                   "NUL");
    DECODE_REFUSED(error_reply,
                   "\x83\xa4"
                   "code\xcd\x12\x34\xa7message\xa0\xa6worker\x00",
                   "a status that this version does not know");
    DECODE_REFUSED(error_reply,
                   "\x83\xa4"
                   "code\x00\xa7message\xa0\xa6worker\x00",
                   "code is 0");
}

TEST(decode_refuses_bodies_without_text_keyed_map)
{
    DECODE_REFUSED(quit, "\x90", "a list; must be a map");
    DECODE_REFUSED(quit, "\x07", "must be a map");
    DECODE_REFUSED(quit, "\x81\x01\x02", "a key is not a text");
    DECODE_REFUSED(quit, "", "malformed message");
    DECODE_REFUSED(quit, "\x80\x80", "extra bytes");
}

TEST(decode_refuses_overlong_texts)
{
    char body[300] = "\x81\xa6reason\xd9\xf0";

    memset(body + 10, 'x', 240); /* gp_revoke holds 239 */
    gp_revoke got;
    gp_error err;

    CHECK_STATUS(GP_EPROTO, gp_message_decode(&got, &gp_msg_revoke, body, 250, &err));
    CHECK_CONTAINS(err.message, "reason has 240 bytes; at most 239");
}

TEST(decode_refuses_overlong_lists_and_lists_without_maps)
{
    char body[400] = "\x81\xa5slots\xdc\x00\x41"; /* 65 */
    gp_lease_grant *got = gp_calloc(1, sizeof(*got));
    gp_error err;

    CHECK_STATUS(GP_EPROTO, gp_message_decode(got, &gp_msg_lease_grant, body, 10 + 65, &err));
    CHECK_CONTAINS(err.message, "slots has 65 elements");
    CHECK_STATUS(GP_EPROTO, gp_message_decode(got, &gp_msg_lease_grant, "\x81\xa5slots\x91\x07", 9, &err));
    CHECK_CONTAINS(err.message, "slots[0]: must be a map");
    gp_free(got);
}

TEST(decode_skips_unknown_keys_with_any_value)
{
    static const char body[] = "\x83\xa3new\x92\x81\xa1k\x93\x01\x02\xc4\x01x\xa1y\xa4hard\xc3\xa5other\xc0";
    gp_train_stop got;
    gp_error err;

    REQUIRE_OK(gp_message_decode(&got, &gp_msg_train_stop, body, sizeof(body) - 1, &err), err);
    CHECK(got.hard);
}

TEST(decode_sets_missing_optional_fields_to_their_default)
{
    static const char body[] = "\x85\xa4role\x01\xacprotocol_min\x01\xacprotocol_max\x02\xa5"
                               "build\xa0\xa3pid\x07";
    gp_hello got;
    gp_error err;

    REQUIRE_OK(gp_message_decode(&got, &gp_msg_hello, body, sizeof(body) - 1, &err), err);
    CHECK_INT(7, got.pid);
    CHECK_INT(0, got.features);

    static const char change[] = "\x82\xa7workers\x03\xa5"
                                 "asked\xc2";
    static gp_lease_change changed = { .joining_count = 9 };

    REQUIRE_OK(gp_message_decode(&changed, &gp_msg_lease_change, change, sizeof(change) - 1, &err), err);
    CHECK_INT(0, changed.joining_count);
}

TEST(decode_accepts_all_integer_formats)
{
    static const char body[] = "\x82\xa5"
                               "first\xd3\x00\x00\x00\x00\x00\x00\x00\x05\xa5"
                               "count\xcf\x00\x00\x00\x00\x00\x00\x00\x09";
    gp_predict_ask got;
    gp_error err;

    REQUIRE_OK(gp_message_decode(&got, &gp_msg_predict_ask, body, sizeof(body) - 1, &err), err);
    CHECK_INT(5, got.first);
    CHECK_INT(9, got.count);
}

/* ---- envelope and versions ---- */

TEST(envelope_survives_a_round_trip)
{
    gp_envelope sent = sample_envelope(&gp_msg_train_begin), got;
    gp_buffer bytes;
    gp_error err;

    gp_buffer_init(&bytes, GP_ENVELOPE_BYTES_MAX);
    REQUIRE_OK(gp_envelope_encode(&bytes, &sent, &err), err);
    REQUIRE_OK(gp_envelope_decode(&got, bytes.data, bytes.bytes, &err), err);
    CHECK(memcmp(&sent, &got, sizeof(sent)) == 0);
    bytes.data[0] = 0x98;
    CHECK_STATUS(GP_EPROTO, gp_envelope_decode(&got, bytes.data, bytes.bytes, &err));
    gp_buffer_deinit(&bytes);
}

TEST(envelope_accepts_additional_fields_at_the_end_only)
{
    static const char longer[] = "\x9a\x07\x03\x00\x00\x00\x00\xc4\x10xxxxxxxxxxxxxxxx\x00\x00\xa3new";
    static const char shorter[] = "\x98\x01\x03\x00\x00\x00\x00\xc4\x10xxxxxxxxxxxxxxxx\x00";
    static const char no_session[] = "\x99\x01\x03\x00\x00\x00\x00\xa1x\x00\x00";
    static const char zero[] = "\x99\x00\x03\x00\x00\x00\x00\xc4\x10xxxxxxxxxxxxxxxx\x00\x00";
    static const char wide[] =
        "\x99\x01\xcf\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x00\xc4\x10xxxxxxxxxxxxxxxx\x00\x00";
    gp_envelope got;
    gp_error err;

    REQUIRE_OK(gp_envelope_decode(&got, longer, sizeof(longer) - 1, &err), err);
    CHECK_INT(7, got.protocol);
    CHECK_STATUS(GP_EPROTO, gp_envelope_decode(&got, shorter, sizeof(shorter) - 1, &err));
    CHECK_STATUS(GP_EPROTO, gp_envelope_decode(&got, no_session, sizeof(no_session) - 1, &err));
    CHECK_STATUS(GP_EPROTO, gp_envelope_decode(&got, zero, sizeof(zero) - 1, &err));
    CHECK_STATUS(GP_EPROTO, gp_envelope_decode(&got, wide, sizeof(wide) - 1, &err));
}

TEST(incompatible_versions_are_named_in_the_error)
{
    uint32_t chosen = 0;
    gp_error err;

    CHECK_STATUS(GP_OK, gp_protocol_choose(&chosen, 1, 9, &err));
    CHECK_INT(GP_PROTOCOL, chosen);
    CHECK_STATUS(GP_EVERSION, gp_protocol_choose(&chosen, 2, 3, &err));
    CHECK_CONTAINS(err.message, "2 to 3");
    CHECK_CONTAINS(err.message, "1 to 1");
    CHECK_STATUS(GP_EVERSION, gp_protocol_choose(&chosen, 3, 2, &err));
    CHECK_INT(GP_PROTOCOL, chosen);
}

/* ---- all field kinds, in a table defined for this test ---- */

typedef struct gp_inner {
    uint32_t x;
} gp_inner;

typedef struct gp_kinds {
    bool b;
    int32_t i;
    int64_t l;
    double f;
    char t[8];
    gp_inner s;
    uint32_t list_count;
    gp_inner list[3];
    uint64_t o;
} gp_kinds;

static const gp_field gp_inner_fields[] = { GP_FIELD_U32(gp_inner, x, 0, 9), GP_FIELD_END };
static const gp_field gp_kinds_fields[] = {
    GP_FIELD_BOOL(gp_kinds, b),
    GP_FIELD_I32(gp_kinds, i, -5, 5),
    GP_FIELD_I64(gp_kinds, l, INT64_MIN, INT64_MAX - 1),
    GP_FIELD_F64(gp_kinds, f, -1e300, 1e300),
    GP_FIELD_TEXT(gp_kinds, t, 8),
    GP_FIELD_STRUCT(gp_kinds, s, gp_inner),
    GP_FIELD_LIST(gp_kinds, list, gp_inner, 3),
    GP_FIELD_U64_OPTIONAL(gp_kinds, o, 0, 100, 7),
    GP_FIELD_END,
};
static const gp_message_type gp_msg_kinds = { 9999, "kinds", GP_DIR_ANY, sizeof(gp_kinds), gp_kinds_fields };

/* Build a body with valid values for all fields except `key`, which gets the given bytes, and
 * decode it. */
static gp_status kinds_decode(gp_kinds *got, const char *key, const char *value, size_t bytes, gp_error *err)
{
    static const struct {
        const char *key, *value;
        size_t bytes;
    } fine[] = { { "b", "\xc3", 1 },  { "i", "\x01", 1 },          { "l", "\x02", 1 },   { "f", "\x03", 1 },
                 { "t", "\xa1x", 2 }, { "s", "\x81\xa1x\x01", 4 }, { "list", "\x90", 1 } };
    char body[200];
    size_t at = 0;

    body[at++] = (char)0x87;
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        bool chosen = strcmp(fine[i].key, key) == 0;

        body[at++] = (char)(0xa0 | strlen(fine[i].key));
        memcpy(body + at, fine[i].key, strlen(fine[i].key));
        at += strlen(fine[i].key);
        memcpy(body + at, chosen ? value : fine[i].value, chosen ? bytes : fine[i].bytes);
        at += chosen ? bytes : fine[i].bytes;
    }
    return gp_message_decode(got, &gp_msg_kinds, body, at, err);
}

#define KIND_REFUSED(key, value, reason)                                                                     \
    do {                                                                                                     \
        gp_kinds got_;                                                                                       \
        gp_error err_ = { .code = GP_OK };                                                                   \
        CHECK_STATUS(GP_EPROTO, kinds_decode(&got_, key, value, sizeof(value) - 1, &err_));                  \
        CHECK_CONTAINS(err_.message, reason);                                                                \
    } while (0)

TEST(each_field_kind_accepts_only_matching_values)
{
    gp_kinds got;
    gp_error err;

    REQUIRE_OK(kinds_decode(&got, "l", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00", 9, &err), err);
    CHECK(got.l == INT64_MIN);
    CHECK_INT(7, got.o);
    CHECK_NEAR(3, got.f, 0);
    REQUIRE_OK(kinds_decode(&got, "f", "\xff", 1, &err), err);
    CHECK_NEAR(-1, got.f, 0);
    REQUIRE_OK(kinds_decode(&got, "f", "\xca\x3f\x00\x00\x00", 5, &err), err);
    CHECK_NEAR(0.5, got.f, 0);
    REQUIRE_OK(kinds_decode(&got, "i", "\xd1\xff\xfb", 3, &err), err);
    CHECK_INT(-5, got.i);
    REQUIRE_OK(kinds_decode(&got, "list", "\x92\x81\xa1x\x04\x81\xa1x\x05", 9, &err), err);
    CHECK_INT(2, got.list_count);
    CHECK_INT(5, got.list[1].x);
    KIND_REFUSED("i", "\xfa", "i is -6; must be between -5 and 5");
    KIND_REFUSED("i", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "must be an integer");
    KIND_REFUSED("i", "\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00", "i is a float");
    KIND_REFUSED("l", "\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", "l is 9223372036854775807");
    KIND_REFUSED("f", "\xc3", "f is a boolean; must be a number");
    KIND_REFUSED("f", "\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00", "f is inf");
    KIND_REFUSED("f", "\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", "f is nan");
    KIND_REFUSED("t", "\xc4\x01x", "t is binary data; must be a text");
    KIND_REFUSED("s", "\x90", "s is a list; must be a map");
    KIND_REFUSED("s", "\x81\xa1x\x0a", "s: x is 10");
    KIND_REFUSED("s", "\x80", "s: x is missing");
    KIND_REFUSED("list", "\x80", "list is a map; must be a list");
    KIND_REFUSED("list", "\x91\x80", "list[0]: x is missing");
    KIND_REFUSED("list", "\x94\x80\x80\x80\x80", "list has 4 elements");
    KIND_REFUSED("b", "\xc0", "b is nil");
}

TEST(encode_checks_nested_structs_and_signed_numbers)
{
    gp_kinds sent = { .l = INT64_MAX, .s = { 1 } }, got;
    gp_buffer body;
    gp_error err;

    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_kinds, &sent, &err));
    CHECK_CONTAINS(err.message, "l is 9223372036854775807");
    sent.l = -3;
    sent.s.x = 10;
    CHECK_STATUS(GP_EINVAL, encode_only(&gp_msg_kinds, &sent, &err));
    CHECK_CONTAINS(err.message, "s: x is 10");
    sent.s.x = 9;
    gp_buffer_init(&body, GP_BODY_BYTES_MAX);
    REQUIRE_OK(gp_message_encode(&body, &gp_msg_kinds, &sent, &err), err);
    REQUIRE_OK(gp_message_decode(&got, &gp_msg_kinds, body.data, body.bytes, &err), err);
    CHECK_INT(-3, got.l);
    CHECK_INT(9, got.s.x);
    CHECK_TEXT("", got.t);
    CHECK(!got.b && got.i == 0 && got.f == 0 && got.list_count == 0 && got.o == 0);
    gp_buffer_deinit(&body);
}

TEST(overlong_envelopes_are_refused)
{
    char bytes[400] = "\x9a\x01\x03\x00\x00\x00\x00\xc4\x10xxxxxxxxxxxxxxxx\x00\x00\xda\x01\x00";
    static const char ack[] = "\x99\x01\x03\x00\x00\x00\x00\xc4\x10xxxxxxxxxxxxxxxx\x00\xc0";
    gp_envelope got;
    gp_error err;

    memset(bytes + 30, 'x', 256);
    CHECK_STATUS(GP_EPROTO, gp_envelope_decode(&got, bytes, 286, &err));
    CHECK_CONTAINS(err.message, "at most 256 are allowed");
    CHECK_STATUS(GP_EPROTO, gp_envelope_decode(&got, ack, sizeof(ack) - 1, &err));
    CHECK_CONTAINS(err.message, "seq or ack");
}
