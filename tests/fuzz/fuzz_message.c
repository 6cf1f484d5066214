/* fuzz_message.c: bytes from a peer. The first byte selects the message type (0: the envelope).
 *
 * No input crashes. If the validator accepts a message, msgpack-c can unpack it. Decoded messages
 * encode again, and the second encoding equals the first. */
#include <msgpack.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/buffer.h"
#include "proto/message/codec.h"
#include "proto/message/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort unless kept. Unlike assert(), it works in every build. */
static void promise(int kept)
{
    if (!kept)
        abort();
}

static union {
    gp_status_reply status;
    gp_lease_grant lease;
    gp_grant grant;
    gp_train_steps steps;
    char other[8192];
} first, second;

static void tree_build(const uint8_t *data, size_t size)
{
    msgpack_unpacked tree;
    size_t offset = 0;

    msgpack_unpacked_init(&tree);
    promise(msgpack_unpack_next(&tree, (const char *)data, size, &offset) == MSGPACK_UNPACK_SUCCESS);
    promise(offset == size);
    msgpack_unpacked_destroy(&tree);
}

static void message_try(const gp_message_type *type, const uint8_t *data, size_t size)
{
    gp_buffer once, twice;

    promise(type->size <= sizeof(first));
    if (gp_message_decode(&first, type, data, size, NULL) != GP_OK)
        return;
    gp_buffer_init(&once, GP_BODY_BYTES_MAX);
    gp_buffer_init(&twice, GP_BODY_BYTES_MAX);
    promise(gp_message_encode(&once, type, &first, NULL) == GP_OK);
    promise(gp_message_decode(&second, type, once.data, once.bytes, NULL) == GP_OK);
    promise(gp_message_encode(&twice, type, &second, NULL) == GP_OK);
    promise(once.bytes == twice.bytes && memcmp(once.data, twice.data, once.bytes) == 0);
    gp_buffer_deinit(&once);
    gp_buffer_deinit(&twice);
}

static void envelope_try(const uint8_t *data, size_t size)
{
    gp_envelope read, again;
    gp_buffer bytes;

    if (gp_envelope_decode(&read, data, size, NULL) != GP_OK)
        return;
    gp_buffer_init(&bytes, GP_ENVELOPE_BYTES_MAX);
    promise(gp_envelope_encode(&bytes, &read, NULL) == GP_OK);
    promise(gp_envelope_decode(&again, bytes.data, bytes.bytes, NULL) == GP_OK);
    promise(memcmp(&read, &again, sizeof(read)) == 0);
    gp_buffer_deinit(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const gp_message_type *type = gp_message_find(data[0]);
    const uint8_t *body = data + 1;
    size_t bytes = size - 1;

    if (gp_msgpack_validate(body, bytes, NULL) == GP_OK)
        tree_build(body, bytes);
    if (type != NULL)
        message_try(type, body, bytes);
    else
        envelope_try(body, bytes);
    return 0;
}
