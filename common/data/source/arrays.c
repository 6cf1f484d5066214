/* A store over arrays in memory, or over mapped decoded samples. */
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/store/store_ops.h"

typedef struct arrays_store {
    gp_store store;
    const uint8_t *samples;
    const uint8_t *targets;
    void *owned_targets; /* NULL: borrowed */
    gp_decoded decoded;  /* memory behind `samples`; all zero: not decoded data */
} arrays_store;

static gp_status arrays_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                             void *targets, gp_error *err)
{
    const arrays_store *arrays = (const arrays_store *)store;
    size_t bytes = store->info.sample_bytes, target_bytes = store->info.target_bytes;

    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        if (samples != NULL)
            memcpy((uint8_t *)samples + i * bytes, arrays->samples + index[i] * bytes, bytes);
        if (targets != NULL)
            memcpy((uint8_t *)targets + i * target_bytes, arrays->targets + index[i] * target_bytes,
                   target_bytes);
    }
    return GP_OK;
}

static void arrays_close(gp_store *store)
{
    arrays_store *arrays = (arrays_store *)store;

    gp_free(arrays->owned_targets);
    gp_decoded_deinit(&arrays->decoded);
    gp_store_deinit(store);
    gp_free(arrays);
}

static const gp_store_ops arrays_ops = { .read = arrays_read, .close = arrays_close };

/* Check that every index is -1 or a valid class. GP_ECORRUPT: it is not. */
static gp_status targets_check(const gp_store_info *info, const uint8_t *targets, gp_error *err)
{
    for (uint32_t i = 0; i < info->count; i++)
        for (uint32_t k = 0; k < info->target_count; k++) {
            const int32_t *labels = (const int32_t *)targets;
            int64_t count = gp_shape_count(&info->targets[k].shape);

            targets += gp_targets_bytes(&info->targets[k], 1);
            for (int64_t e = 0; info->targets[k].dtype == GP_I32 && e < count; e++)
                if (labels[e] < -1 || labels[e] >= (int64_t)info->targets[k].classes)
                    return gp_fail(err, GP_ECORRUPT,
                                   "%s: the label of sample %u is %d, but there are %u classes; labels must "
                                   "be 0 to %u, or -1 for no label",
                                   info->source, i, labels[e], info->targets[k].classes,
                                   info->targets[k].classes - 1);
        }
    return GP_OK;
}

/* Create a store over arrays. This function takes ownership of the memory in *arrays, even on
 * failure. */
static gp_status arrays_open(gp_store **out, const gp_store_info *info, arrays_store *arrays, gp_error *err)
{
    arrays_store *store = gp_calloc(1, sizeof(*store));
    gp_status status;

    if (store == NULL) {
        gp_free(arrays->owned_targets);
        gp_decoded_deinit(&arrays->decoded);
        return gp_fail(err, GP_ENOMEM, "no memory for the store of %s", info->source);
    }
    *store = *arrays;
    status = gp_store_init(&store->store, &arrays_ops, info, err);
    if (status == GP_OK)
        status = targets_check(&store->store.info, store->targets, err);
    return gp_store_seal(out, &store->store, status, err);
}

gp_status gp_store_open_arrays(gp_store **out, const gp_store_info *info, const void *samples,
                               const void *targets, gp_error *err)
{
    return arrays_open(out, info, &(arrays_store){ .samples = samples, .targets = targets }, err);
}

gp_status gp_store_open_decoded(gp_store **out, const gp_store_info *info, gp_decoded *decoded,
                                const void *targets, void *owned, gp_error *err)
{
    arrays_store arrays = {
        .samples = decoded->data, .targets = targets, .owned_targets = owned, .decoded = *decoded
    };
    gp_store_info known = *info;

    known.decode_ns = decoded->decode_ns;
    known.decode_cached = decoded->decode_ns > 0 && decoded->map != NULL;
    *decoded = (gp_decoded){ 0 };
    return arrays_open(out, &known, &arrays, err);
}
