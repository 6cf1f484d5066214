/* Read samples for the loader, and apply augmentation and pixel format unless the store already
 * did. */
#include "common/data/loader/reader.h"

#include <string.h>

#include "common/base/memory/alloc.h"

enum { ALIGNMENT = 64 };

gp_status gp_reader_init(gp_reader *reader, const gp_store *store, const gp_sampler *sampler,
                         const gp_loader_options *options, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);
    gp_status status = GP_OK;

    reader->store = store;
    reader->sampler = *sampler;
    reader->shape = *info;
    reader->augments = options->augment != NULL && !gp_augment_is_identity(options->augment);
    if (reader->augments) {
        reader->augment = *options->augment;
        status = gp_augment_shape(&reader->shape, &reader->augment, info, err);
    }
    if (status == GP_OK && options->form != GP_PIXELS_PLANES && info->dtype != GP_U8)
        status =
            gp_fail(err, GP_EINVAL, "the samples of %s are no bytes; they have no other form", info->source);
    if (status != GP_OK)
        return status;
    reader->draws = reader->augments && gp_store_draws(reader->store, &reader->augment);
    reader->drawing =
        (gp_drawing){ .augment = &reader->augment,
                      .shape = &reader->shape,
                      .seed = options->seed,
                      .form = options->form,
                      .sample_bytes = reader->shape.sample_bytes * gp_pixel_form_bytes(options->form) };
    return GP_OK;
}

gp_status gp_reader_scratch_init(gp_reader_scratch *scratch, const gp_reader *reader, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(reader->store);
    bool forms = reader->drawing.form != GP_PIXELS_PLANES;

    if (reader->draws || !(reader->augments || forms))
        return GP_OK;
    scratch->stored = gp_aligned_calloc(ALIGNMENT, GP_READER_SAMPLES * info->sample_bytes);
    scratch->stored_targets = gp_aligned_calloc(ALIGNMENT, GP_READER_SAMPLES * info->target_bytes);
    if (reader->augments && forms)
        scratch->drawn = gp_aligned_calloc(ALIGNMENT, reader->shape.sample_bytes);
    if (scratch->stored == NULL || scratch->stored_targets == NULL ||
        (reader->augments && forms && scratch->drawn == NULL))
        return gp_fail(err, GP_ENOMEM, "no memory for %d samples of %zu bytes", GP_READER_SAMPLES,
                       info->sample_bytes + info->target_bytes);
    return GP_OK;
}

void gp_reader_scratch_deinit(gp_reader_scratch *scratch)
{
    gp_free(scratch->stored);
    gp_free(scratch->stored_targets);
    gp_free(scratch->drawn);
}

/* Augment sample i of the last read, convert its pixels, and write sample and targets to the
 * batch. */
static void sample_put(const gp_reader *reader, const gp_reader_scratch *scratch, uint32_t epoch, uint32_t i,
                       uint8_t *sample, uint8_t *targets)
{
    const gp_store_info *info = gp_store_get_info(reader->store), *shape = &reader->shape;
    const uint8_t *stored = scratch->stored + i * info->sample_bytes,
                  *target = scratch->stored_targets + i * info->target_bytes;
    uint8_t *drawn = scratch->drawn == NULL ? sample : scratch->drawn;
    gp_augment_draw draw;

    if (reader->augments) {
        gp_augment_draw_sample(&draw, &reader->augment, info, shape, reader->drawing.seed, epoch,
                               scratch->index[i]);
        gp_augment_image(&draw, info, shape, reader->augment.fill, stored, drawn);
        stored = drawn;
    }
    if (reader->drawing.form != GP_PIXELS_PLANES)
        gp_pixels_form(sample, reader->drawing.form, stored, shape->channels,
                       (size_t)shape->height * shape->width, shape->scale, shape->offset);
    for (uint32_t t = 0; t < info->target_count; t++) {
        size_t bytes = gp_targets_bytes(&info->targets[t], 1);

        if (reader->augments && info->targets[t].shape.rank == 2)
            gp_augment_indices(&draw, info, shape, (const int32_t *)(const void *)target,
                               (int32_t *)(void *)targets);
        else
            memcpy(targets, target, bytes);
        target += bytes;
        targets += gp_targets_bytes(&shape->targets[t], 1);
    }
}

/* Return how many samples each image contributes to an epoch. */
static uint32_t patches_of(const gp_reader *reader)
{
    return reader->augments ? (uint32_t)reader->augment.patches_per_image : 1;
}

gp_status gp_reader_read(const gp_reader *reader, gp_reader_scratch *scratch, const gp_loader_batch *batch,
                         uint32_t at, uint32_t count, gp_error *err)
{
    const uint32_t patches = patches_of(reader);
    uint8_t *samples = (uint8_t *)batch->samples + at * reader->drawing.sample_bytes,
            *targets = (uint8_t *)batch->targets + at * reader->shape.target_bytes;
    uint32_t images[GP_READER_SAMPLES];
    gp_status status;

    gp_sampler_get(&reader->sampler, batch->epoch, batch->first + at, count, scratch->index);
    if (reader->draws)
        return gp_store_read_drawn(reader->store, &reader->drawing, batch->epoch, scratch->index, count,
                                   samples, targets, err);
    if (scratch->stored == NULL)
        return gp_store_read(reader->store, scratch->index, count, samples, targets, err);
    for (uint32_t i = 0; i < count; i++)
        images[i] = scratch->index[i] / patches;
    status = gp_store_read(reader->store, images, count, scratch->stored, scratch->stored_targets, err);
    for (uint32_t i = 0; i < count && status == GP_OK; i++)
        sample_put(reader, scratch, batch->epoch, i, samples + i * reader->drawing.sample_bytes,
                   targets + i * reader->shape.target_bytes);
    return status;
}

void gp_reader_expect(const gp_reader *reader, uint32_t epoch, uint32_t first, uint32_t count)
{
    const uint32_t patches = patches_of(reader);
    uint32_t index[GP_READER_SAMPLES];

    for (uint32_t done = 0; done < count;) {
        uint32_t part = count - done < GP_READER_SAMPLES ? count - done : GP_READER_SAMPLES;

        gp_sampler_get(&reader->sampler, epoch, first + done, part, index);
        for (uint32_t i = 0; i < part; i++)
            index[i] /= patches;
        gp_store_expect(reader->store, index, part);
        done += part;
    }
}
