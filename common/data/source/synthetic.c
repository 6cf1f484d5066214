/* Random bytes as samples, for benchmarks: no files, little memory, as fast as a memory copy.
 *
 * A sample is a window into a fixed block of random bytes, at an offset drawn from the sample
 * index. The label is drawn, too. The bytes are random because kernels run measurably faster on
 * zeros. */
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/rng.h"
#include "common/data/source/sources.h"
#include "common/data/store/store_ops.h"

enum { WINDOW_OFFSETS = 1 << 16 };
static const uint64_t synthetic_seed = 0x73796e7468657469; /* "syntheti" */

typedef struct synthetic_store {
    gp_store store;
    uint8_t *block; /* sample_bytes + WINDOW_OFFSETS bytes */
    gp_data_role role;
} synthetic_store;

static gp_status synthetic_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                                void *targets, gp_error *err)
{
    const synthetic_store *synthetic = (const synthetic_store *)store;
    size_t bytes = store->info.sample_bytes;

    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word[4];

        gp_rng_draw(word, synthetic_seed, (uint32_t)synthetic->role, 1, index[i], 0);
        if (samples != NULL)
            memcpy((uint8_t *)samples + i * bytes, synthetic->block + word[0] % WINDOW_OFFSETS, bytes);
        if (targets != NULL)
            ((int32_t *)targets)[i] = (int32_t)((uint64_t)word[1] * store->info.class_count >> 32);
    }
    return GP_OK;
}

static void synthetic_close(gp_store *store)
{
    synthetic_store *synthetic = (synthetic_store *)store;

    gp_free(synthetic->block);
    gp_store_deinit(store);
    gp_free(synthetic);
}

static const gp_store_ops synthetic_ops = { .read = synthetic_read, .close = synthetic_close };

gp_status gp_store_open_synthetic(gp_store **out, const char *source, gp_data_role role,
                                  const gp_store_options *options, gp_error *err)
{
    const char *rest = gp_source_after_word(source, "synthetic");
    gp_store_info info = { .source = source, .kind = "synthetic", .dtype = GP_U8 };
    synthetic_store *synthetic;
    gp_status status;
    int end = -1;

    (void)options;

    /* Nine digits cannot overflow, and gp_store_init() checks the ranges. Reject signs and blanks
     * here. */
    if (sscanf(rest, "%9ux%9ux%9u:%9u:%9u%n", &info.height, &info.width, &info.channels, &info.class_count,
               &info.count, &end) != 5 ||
        rest[end] != '\0' || strpbrk(rest, "+- \t") != NULL)
        return gp_fail(
            err, GP_EINVAL,
            "\"%s\" must be synthetic:HxWxC:CLASSES:COUNT, for example synthetic:224x224x3:1000:50000",
            source);
    synthetic = gp_calloc(1, sizeof(*synthetic));
    if (synthetic == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %s", source);
    /* both parts always exist */
    synthetic->role = role == GP_DATA_TRAIN ? GP_DATA_TRAIN : GP_DATA_TEST;
    status = gp_store_init(&synthetic->store, &synthetic_ops, &info, err);
    const size_t words = (synthetic->store.info.sample_bytes + WINDOW_OFFSETS + 15) / 16 * 4;
    uint32_t *word = status == GP_OK ? gp_malloc(words * sizeof(*word)) : NULL;

    if (status == GP_OK && word == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a sample of %zu bytes",
                         synthetic->store.info.sample_bytes);
    for (size_t i = 0; word != NULL && i < words; i += 4)
        gp_rng_draw(word + i, synthetic_seed, (uint32_t)synthetic->role, 0, (uint32_t)(i / 4), 0);
    synthetic->block = (uint8_t *)word;
    return gp_store_seal(out, &synthetic->store, status, err);
}
