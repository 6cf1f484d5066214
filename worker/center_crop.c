#include "worker/center_crop.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

gp_status gp_center_crop_images(gp_center_crop *crop, gp_store_options *images, const uint32_t size[2],
                                const gp_shape *input, gp_error *err)
{
    const int64_t bring_to[2] = { size[0], size[1] };
    char text[80] = "";

    *crop = (gp_center_crop){ .on = size[0] != 0 || size[1] != 0 };
    if (!crop->on) {
        *images = gp_store_options_for(input);
        return GP_OK;
    }
    if (input->rank != 3)
        return gp_fail(err, GP_EINVAL, "image-size is of images; the model takes a vector");
    if (size[0] < input->dim[1] || size[1] < input->dim[2])
        return gp_fail(err, GP_EINVAL,
                       "image-size is %" PRIu32 ",%" PRIu32 "; the model takes %" PRId64 ",%" PRId64
                       " of them, so it must be at least that",
                       size[0], size[1], input->dim[1], input->dim[2]);
    snprintf(text, sizeof(text), "crop=center crop-size=%" PRId64 ",%" PRId64, input->dim[1], input->dim[2]);
    gp_status status = gp_augment_parse(&crop->augment, text, err);

    return status == GP_OK ? gp_augment_images(images, &crop->augment, bring_to, input, err) : status;
}

gp_status gp_center_crop_open(gp_center_crop *crop, const gp_store *store, uint32_t samples_max,
                              gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);

    crop->out = *info;
    if (!crop->on)
        return GP_OK;
    gp_status status = gp_augment_shape(&crop->out, &crop->augment, info, err);

    if (status != GP_OK)
        return status;
    gp_augment_draw_sample(&crop->draw, &crop->augment, info, &crop->out, 0, 0, 0); /* the same of all */
    crop->samples = gp_aligned_calloc(64, samples_max * info->sample_bytes);
    crop->targets = gp_aligned_calloc(64, samples_max * info->target_bytes);
    return crop->samples != NULL && crop->targets != NULL
               ? GP_OK
               : gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " images of %zu bytes", samples_max,
                         info->sample_bytes);
}

/* Classes of pixels move with their image; what is one number stays. */
static void targets_crop(const gp_center_crop *crop, const gp_store_info *info, const uint8_t *from,
                         uint8_t *to)
{
    for (uint32_t t = 0; t < info->target_count; t++) {
        const size_t bytes = gp_targets_bytes(&info->targets[t], 1);

        if (info->targets[t].shape.rank == 2)
            gp_augment_indices(&crop->draw, info, &crop->out, (const int32_t *)(const void *)from,
                               (int32_t *)(void *)to);
        else
            memcpy(to, from, bytes);
        from += bytes;
        to += gp_targets_bytes(&crop->out.targets[t], 1);
    }
}

gp_status gp_center_crop_read(const gp_center_crop *crop, const gp_store *store, const uint32_t *index,
                              uint32_t count, void *samples, void *targets, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);

    if (!crop->on)
        return gp_store_read(store, index, count, samples, targets, err);
    gp_status status =
        gp_store_read(store, index, count, crop->samples, targets != NULL ? crop->targets : NULL, err);

    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        gp_augment_image(&crop->draw, info, &crop->out, crop->augment.fill,
                         (const uint8_t *)crop->samples + i * info->sample_bytes,
                         (uint8_t *)samples + i * crop->out.sample_bytes);
        if (targets != NULL)
            targets_crop(crop, info, (const uint8_t *)crop->targets + i * info->target_bytes,
                         (uint8_t *)targets + i * crop->out.target_bytes);
    }
    return status;
}

void gp_center_crop_deinit(gp_center_crop *crop)
{
    gp_free(crop->samples);
    gp_free(crop->targets);
}
