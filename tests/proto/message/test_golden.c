/* Golden bytes: the encodings of the envelope and of each message with fixed values must never
 * change.
 *
 * `test_golden --write [SEEDS]` rewrites tests/golden/NAME.hex and, with a second argument, writes
 * raw fuzz seeds to that folder. If older peers would misread the changed bytes, the protocol
 * version must change instead. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "proto/message/codec.h"
#include "proto/message/messages.h"
#include "tests/proto/message/samples.h"

static const char *source_dir(void)
{
    const char *dir = getenv("GP_SOURCE_DIR");

    return dir != NULL ? dir : ".";
}

static void hex_append(gp_buffer *out, const gp_buffer *bytes)
{
    for (size_t i = 0; i < bytes->bytes; i++)
        gp_buffer_printf(out, NULL, "%02x%s", bytes->data[i],
                         i % 32 == 31 || i + 1 == bytes->bytes ? "\n" : "");
}

static int file_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");

    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        printf("cannot write %s: %s\n", path, strerror(errno));
        return 1;
    }
    return 0;
}

static int file_compare(const char *path, const gp_buffer *expected)
{
    static char seen[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t bytes = file == NULL ? 0 : fread(seen, 1, sizeof(seen), file);

    if (file != NULL)
        fclose(file);
    if (bytes == expected->bytes && memcmp(seen, expected->data, bytes) == 0)
        return 0;
    printf("FAIL %s differs from the encoding of this build\n", path);
    return 1;
}

/* Check or write one golden file. If seeds is not NULL, also write id and body to that folder in
 * the format of the fuzz target. */
static int golden_do(const char *name, const gp_buffer *bytes, uint32_t id, int write, const char *seeds)
{
    gp_buffer hex;
    char path[1024];
    int failed;

    gp_buffer_init(&hex, 4 << 20);
    hex_append(&hex, bytes);
    snprintf(path, sizeof(path), "%s/tests/golden/%s.hex", source_dir(), name);
    failed = write ? file_write(path, hex.data, hex.bytes) : file_compare(path, &hex);
    if (seeds != NULL) {
        gp_buffer_clear(&hex);
        gp_buffer_append(&hex, (uint8_t[]){ (uint8_t)id }, 1, NULL);
        gp_buffer_append(&hex, bytes->data, bytes->bytes, NULL);
        snprintf(path, sizeof(path), "%s/golden-%s", seeds, name);
        failed |= file_write(path, hex.data, hex.bytes);
    }
    gp_buffer_deinit(&hex);
    return failed;
}

int main(int count, char **arguments)
{
    int write = count > 1 && strcmp(arguments[1], "--write") == 0, failed = 0;
    const char *seeds = count > 2 ? arguments[2] : NULL;
    size_t type_count;
    const gp_message_type *const *types = gp_message_all(&type_count);
    gp_envelope envelope = sample_envelope(&gp_msg_train_begin);
    void *message = sample_new();
    gp_buffer bytes;
    gp_error err = { .code = GP_OK };

    gp_buffer_init(&bytes, GP_BODY_BYTES_MAX);
    gp_envelope_encode(&bytes, &envelope, &err);
    failed += golden_do("envelope", &bytes, 0, write, seeds);
    for (size_t i = 0; i < type_count; i++) {
        gp_buffer_clear(&bytes);
        sample_fill(types[i], message, 2);
        if (gp_message_encode(&bytes, types[i], message, &err) != GP_OK) {
            printf("FAIL %s: %s\n", types[i]->name, err.message);
            failed++;
            continue;
        }
        failed += golden_do(types[i]->name, &bytes, types[i]->id, write, seeds);
    }
    gp_buffer_deinit(&bytes);
    gp_free(message);
    printf("%zu messages, %d differ\n", type_count, failed);
    return failed == 0 ? 0 : 1;
}
