/* The validator must refuse all malformed or oversized input before decoding, and accept all that
 * msgpack-c packs. */
#include <msgpack.h>

#include "common/base/printable.h"
#include "proto/message/codec.h"
#include "proto/message/item.h"
#include "tests/gp_test.h"

#define REFUSED(text, reason)                                                                                \
    do {                                                                                                     \
        gp_error err_ = { .code = GP_OK };                                                                   \
        CHECK_STATUS(GP_EPROTO, gp_msgpack_validate(text, sizeof(text) - 1, &err_));                         \
        CHECK_CONTAINS(err_.message, reason);                                                                \
    } while (0)

#define ACCEPTED(text) CHECK_STATUS(GP_OK, gp_msgpack_validate(text, sizeof(text) - 1, NULL))

TEST(validator_accepts_each_kind_of_scalar)
{
    ACCEPTED("\x00");
    ACCEPTED("\xff");
    ACCEPTED("\xc0");
    ACCEPTED("\xc3");
    ACCEPTED("\xca\x00\x00\x00\x00");
    ACCEPTED("\xcb\x00\x00\x00\x00\x00\x00\x00\x00");
    ACCEPTED("\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
    ACCEPTED("\xd3\x80\x00\x00\x00\x00\x00\x00\x00");
    ACCEPTED("\xa2\xc3\xa9");
    ACCEPTED("\xd9\x01x");
    ACCEPTED("\xc4\x02\xff\xfe");
    ACCEPTED("\x81\xa1k\x93\x01\x02\x03");
}

TEST(validator_refuses_containers_that_claim_gigabytes)
{
    REFUSED("\xdd\xff\xff\xff\xff", "more values than");
    REFUSED("\xdf\xff\xff\xff\xff", "more values than");
    REFUSED("\xdc\xff\xff\x00", "more values than");
    REFUSED("\x82\x01\x02", "more values than");
    REFUSED("\xdb\xff\xff\xff\xff", "longer than the remaining");
    REFUSED("\xc6\xff\xff\xff\xff", "longer than the remaining");
}

TEST(validator_refuses_truncated_and_trailing_bytes)
{
    REFUSED("", "a value is missing");
    REFUSED("\xcb\x00", "truncated");
    REFUSED("\xd9", "truncated");
    REFUSED("\x92\xa1x", "a value is missing");
    REFUSED("\x01\x02", "extra bytes");
    REFUSED("\x80\x80", "extra bytes");
}

TEST(validator_refuses_ext_types_and_the_unused_byte)
{
    REFUSED("\xc1", "not allowed");
    REFUSED("\xd4\x01\x02", "not allowed");
    REFUSED("\xc7\x01\x02\x03", "not allowed");
    REFUSED("\xd8\x01xxxxxxxxxxxxxxxx", "not allowed");
}

TEST(validator_accepts_sixteen_levels_and_refuses_seventeen)
{
    uint8_t nested[18];

    memset(nested, 0x91, sizeof(nested));
    nested[16] = 0x01;
    CHECK_STATUS(GP_OK, gp_msgpack_validate(nested, 17, NULL));
    nested[16] = 0x91;
    nested[17] = 0x01;
    gp_error err = { .code = GP_OK };
    CHECK_STATUS(GP_EPROTO, gp_msgpack_validate(nested, 18, &err));
    CHECK_CONTAINS(err.message, "16 levels");
}

TEST(validator_refuses_more_than_65536_values)
{
    static uint8_t many[70000];
    gp_error err = { .code = GP_OK };

    many[0] = 0xdd;
    many[3] = 0xff;
    many[4] = 0xff; /* the array and 65,535 elements */
    CHECK_STATUS(GP_OK, gp_msgpack_validate(many, 5 + 65535, NULL));
    many[2] = 0x01;
    many[3] = many[4] = 0x00;
    CHECK_STATUS(GP_EPROTO, gp_msgpack_validate(many, 5 + 65536, &err));
    CHECK_CONTAINS(err.message, "65,536 values");
}

TEST(validator_refuses_texts_over_64_kib)
{
    static uint8_t text[5 + 65537];

    memset(text, 'x', sizeof(text));
    memcpy(text, "\xdb\x00\x01\x00\x00", 5);
    CHECK_STATUS(GP_OK, gp_msgpack_validate(text, 5 + 65536, NULL));
    text[4] = 1;
    CHECK_STATUS(GP_EPROTO, gp_msgpack_validate(text, sizeof(text), NULL));
}

TEST(validator_refuses_invalid_utf8)
{
    REFUSED("\xa1\xff", "UTF-8");
    REFUSED("\xa1\x80", "UTF-8");
    REFUSED("\xa2\xc0\x80", "UTF-8");         /* overlong NUL */
    REFUSED("\xa3\xe0\x80\x80", "UTF-8");     /* overlong */
    REFUSED("\xa3\xed\xa0\x80", "UTF-8");     /* surrogate */
    REFUSED("\xa4\xf4\x90\x80\x80", "UTF-8"); /* above U+10FFFF */
    REFUSED("\xa2\xe2\x82", "UTF-8");         /* truncated */
    ACCEPTED("\xa4\xf4\x8f\xbf\xbf");
    ACCEPTED("\xa3\xed\x9f\xbf");
}

TEST(cleaning_keeps_valid_characters)
{
    char text[] = "a\xc3\xa9\xff\xe2\x82 b";

    gp_utf8_clean(text, strlen(text));
    CHECK_TEXT("a\xc3\xa9??? b", text);
    CHECK(gp_utf8_valid((uint8_t *)text, strlen(text)));
}

/* All inputs of one or two bytes, and of three bytes behind a container: msgpack-c must be able to
 * read each one that the validator accepts. */
TEST(msgpack_c_reads_all_accepted_short_inputs)
{
    unsigned accepted = 0;

    for (uint32_t value = 0; value < 1u << 16; value++) {
        char bytes[3] = { (char)0x91, (char)(value >> 8), (char)value };

        for (int start = 0; start < 2; start++) {
            size_t count = sizeof(bytes) - (size_t)start;
            msgpack_unpacked tree;

            if (gp_msgpack_validate(bytes + start, count, NULL) != GP_OK)
                continue;
            accepted++;
            msgpack_unpacked_init(&tree);
            size_t offset = 0;
            msgpack_unpack_return result = msgpack_unpack_next(&tree, bytes + start, count, &offset);

            if (result != MSGPACK_UNPACK_SUCCESS || offset != count)
                GP_TEST_FAIL("msgpack-c says %d for %02x%02x%02x", (int)result, (unsigned char)bytes[0],
                             (unsigned char)bytes[1], (unsigned char)bytes[2]);
            msgpack_unpacked_destroy(&tree);
        }
    }
    CHECK(accepted > 1000);
}
