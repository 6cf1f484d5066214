#include "common/base/memory/hash.h"
#include "common/data/store/store_ops.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/store/class_match.h"

/* Copy the class names into one block: the pointers, followed by the text. NULL: use the
 * numbers. */
static gp_status class_names_copy(gp_store *store, const char *const *names, gp_error *err)
{
    uint32_t count = store->info.class_count;
    size_t bytes = count * (sizeof(char *) + (names == NULL ? 8 : 0));
    char *text;

    for (uint32_t i = 0; names != NULL && i < count; i++)
        bytes += strlen(names[i]) + 1;
    store->class_names = gp_malloc(bytes);
    if (store->class_names == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u class names", count);
    text = (char *)(store->class_names + count);
    for (uint32_t i = 0; i < count; i++) {
        store->class_names[i] = text;
        if (names != NULL)
            text = stpcpy(text, names[i]) + 1;
        else
            text += sprintf(text, "%u", i) + 1;
    }
    store->info.class_names = store->class_names;
    return GP_OK;
}

/* Check targets and class counts against the limits, and fill in defaults. */
static gp_status targets_init(gp_store_info *info, gp_error *err)
{
    uint32_t classes = 0;

    if (info->target_count == 0) {
        info->target_count = 1;
        info->targets[0] = (gp_target){ .dtype = GP_I32 };
    }
    assert(info->target_count <= GP_STORE_TARGETS_MAX);
    for (uint32_t i = 0; i < info->target_count; i++) {
        gp_target *target = &info->targets[i];
        gp_status status = gp_shape_check(&target->shape, GP_STORE_TARGET_MAX, err);

        assert(target->dtype == GP_I32 || target->dtype == GP_F32);
        if (status != GP_OK)
            return status;
        if (gp_shape_count(&target->shape) == 0)
            return gp_fail(err, GP_EINVAL, "target %u of %s has no elements", i + 1, info->source);
        if (target->dtype == GP_F32)
            continue;
        if (target->classes == 0)
            target->classes = info->class_count;
        if (target->classes < 1 || target->classes > GP_STORE_CLASSES_MAX)
            return gp_fail(err, GP_ELIMIT, "%s has %u classes; must be between 1 and %d", info->source,
                           target->classes, GP_STORE_CLASSES_MAX);
        if (classes == 0)
            classes = target->classes;
    }
    info->target_bytes = gp_targets_bytes(info->targets, info->target_count);
    info->class_count = classes;
    return GP_OK;
}

gp_status gp_store_info_check(gp_store_info *info, gp_error *err)
{
    if (info->count < 1 || info->count > GP_STORE_SAMPLES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has %u samples; must be between 1 and %d", info->source,
                       info->count, GP_STORE_SAMPLES_MAX);
    if (info->channels < 1 || info->channels > GP_STORE_CHANNELS_MAX || info->height < 1 ||
        info->height > GP_STORE_SIDE_MAX || info->width < 1 || info->width > GP_STORE_SIDE_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "the samples of %s are %ux%u with %u channels; sides of 1 to %d and 1 to %d channels "
                       "are supported",
                       info->source, info->height, info->width, info->channels, GP_STORE_SIDE_MAX,
                       GP_STORE_CHANNELS_MAX);
    assert(info->dtype == GP_U8 || info->dtype == GP_F32);
    info->sample_bytes = (size_t)info->channels * info->height * info->width * gp_dtype_bytes(info->dtype);
    return targets_init(info, err);
}

/* Check the description and copy it; see store_ops.h. */
gp_status gp_store_init(gp_store *store, const gp_store_ops *ops, const gp_store_info *info, gp_error *err)
{
    store->ops = ops;
    store->info = *info;
    store->info.class_names = NULL;
    gp_status status = gp_store_info_check(&store->info, err);

    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < info->channels; i++) {
        store->info.scale[i] = info->dtype == GP_U8 ? 1.0f / 255.0f : 1.0f;
        store->info.offset[i] = 0.0f;
    }
    store->source = gp_strdup(info->source);
    if (store->source == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the name of %s", info->source);
    store->info.source = store->source;
    return class_names_copy(store, info->class_names, err);
}

void gp_store_deinit(gp_store *store)
{
    gp_free(store->renumber);
    gp_free(store->class_empty);
    gp_free(store->source);
    gp_free(store->class_names);
    gp_free((void *)store->bad);
}

bool gp_store_has_class(const gp_store_info *info)
{
    return info->target_count == 1 && info->targets[0].dtype == GP_I32 && info->targets[0].shape.rank == 0;
}

/* Compute the fingerprint from evenly spaced samples, announced together so that a remote store can
 * fetch them in parallel. */
static gp_status fingerprint_make(gp_store *store, gp_error *err)
{
    enum { SAMPLED = 64 };
    const gp_store_info *info = &store->info;
    const uint64_t numbers[] = { info->count, info->channels, info->height,
                                 info->width, info->dtype,    info->class_count };
    uint32_t sampled = info->count < SAMPLED ? info->count : SAMPLED, looked_at[SAMPLED];
    uint64_t hash = GP_HASH_BEGIN;
    gp_status status = GP_OK;
    uint8_t *sample = gp_malloc(info->sample_bytes), *targets = gp_malloc(info->target_bytes);

    if (sample == NULL || targets == NULL) {
        gp_free(sample);
        gp_free(targets);
        return gp_fail(err, GP_ENOMEM, "no memory for a sample of %zu bytes and targets of %zu",
                       info->sample_bytes, info->target_bytes);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        hash = gp_hash_add_number(hash, numbers[i]);
    for (uint32_t i = 0; i < info->target_count && !gp_store_has_class(info); i++) {
        hash = gp_hash_add_number(hash, info->targets[i].dtype);
        hash = gp_hash_add_number(hash, info->targets[i].shape.rank);
        for (uint32_t d = 0; d < info->targets[i].shape.rank; d++)
            hash = gp_hash_add_number(hash, (uint64_t)info->targets[i].shape.dim[d]);
    }
    for (uint32_t i = 0; i < sampled; i++)
        looked_at[i] = (uint32_t)((uint64_t)i * info->count / sampled);
    gp_store_expect(store, looked_at, sampled);
    for (uint32_t i = 0; i < sampled && status == GP_OK; i++) {
        status = gp_store_read(store, &looked_at[i], 1, sample, targets, err);
        if (status == GP_OK) {
            hash = gp_hash_add(hash, sample, info->sample_bytes);
            /* a single class is added as a 64-bit number */
            hash = gp_store_has_class(info) ? gp_hash_add_number(hash, *(const uint32_t *)(void *)targets)
                                            : gp_hash_add(hash, targets, info->target_bytes);
        }
    }
    gp_free(sample);
    gp_free(targets);
    store->info.fingerprint = hash;
    return status;
}

gp_status gp_store_seal(gp_store **out, gp_store *store, gp_status status, gp_error *err)
{
    if (status == GP_OK)
        status = fingerprint_make(store, err);
    if (status == GP_OK)
        *out = store;
    else
        gp_store_close(store);
    return status;
}

void gp_store_close(gp_store *store)
{
    if (store != NULL)
        store->ops->close(store);
}

const gp_store_info *gp_store_get_info(const gp_store *store)
{
    return &store->info;
}

/* Renumber the labels in the first index target, which is the target with class names. */
static void targets_renumber(const gp_store *store, uint8_t *targets)
{
    const gp_target *target = store->info.targets;
    int32_t *labels;
    int64_t count;

    for (; target->dtype != GP_I32; target++) /* renumber is set only if an index target exists */
        targets += gp_targets_bytes(target, 1);
    labels = (int32_t *)targets;
    count = gp_shape_count(&target->shape);
    for (int64_t e = 0; e < count; e++)
        if (labels[e] >= 0)
            labels[e] = store->renumber[labels[e]];
}

/* Check that all indices are below `limit`. */
static gp_status index_check(const gp_store *store, const uint32_t *index, uint32_t count, uint32_t limit,
                             gp_error *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (index[i] >= limit)
            return gp_fail(err, GP_EINVAL, "invalid sample %u of %s, which has %u", index[i],
                           store->info.source, limit);
    return GP_OK;
}

gp_status gp_store_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                        void *targets, gp_error *err)
{
    gp_status status = index_check(store, index, count, store->info.count, err);

    if (status == GP_OK)
        status = store->ops->read(store, index, count, samples, targets, err);
    if (status == GP_OK && targets != NULL && store->renumber != NULL)
        for (uint32_t i = 0; i < count; i++)
            targets_renumber(store, (uint8_t *)targets + i * store->info.target_bytes);
    return status;
}

bool gp_store_draws(const gp_store *store, const gp_augment *augment)
{
    return store->ops->draws != NULL && store->ops->draws(store, augment);
}

gp_status gp_store_read_drawn(const gp_store *store, const gp_drawing *drawing, uint32_t epoch,
                              const uint32_t *index, uint32_t count, void *samples, void *targets,
                              gp_error *err)
{
    gp_status status = index_check(store, index, count, drawing->shape->count, err);

    if (status == GP_OK)
        status = store->ops->read_drawn(store, drawing, epoch, index, count, samples, targets, err);
    for (uint32_t i = 0; status == GP_OK && store->renumber != NULL && i < count; i++)
        targets_renumber(store, (uint8_t *)targets + i * store->info.target_bytes);
    return status;
}

/* ---- one sample at its own size ---- */

/* Grow the buffers to at least these sizes. Size 0 allocates nothing and keeps NULL. */
gp_status gp_whole_reserve(gp_whole *whole, size_t sample_bytes, size_t label_bytes, gp_error *err)
{
    if (sample_bytes > whole->sample_bytes) {
        gp_free(whole->sample);
        whole->sample = gp_malloc(sample_bytes);
        whole->sample_bytes = whole->sample == NULL ? 0 : sample_bytes;
    }
    if (label_bytes > whole->label_bytes) {
        gp_free(whole->labels);
        whole->labels = gp_malloc(label_bytes);
        whole->label_bytes = whole->labels == NULL ? 0 : label_bytes;
    }
    return whole->sample_bytes < sample_bytes || whole->label_bytes < label_bytes
               ? gp_fail(err, GP_ENOMEM, "no memory for an image of %zu bytes", sample_bytes + label_bytes)
               : GP_OK;
}

void gp_whole_deinit(gp_whole *whole)
{
    gp_free(whole->sample);
    gp_free(whole->labels);
    *whole = (gp_whole){ 0 };
}

/* Read a sample from a store whose samples have one size. GP_EUNSUPPORTED: another size is
 * requested. */
static gp_status whole_copy(const gp_store *store, uint32_t index, const gp_whole_size *size, gp_whole *whole,
                            gp_error *err)
{
    const gp_store_info *info = &store->info;
    const gp_shape pixels = gp_shape2(info->height, info->width);
    const bool labelled = info->target_count == 1 && info->targets[0].dtype == GP_I32 &&
                          gp_shape_equal(&info->targets[0].shape, &pixels);

    if ((size->height != 0 && size->height != info->height) ||
        (size->width != 0 && size->width != info->width))
        return gp_fail(err, GP_EUNSUPPORTED,
                       "the samples of %s are arrays of %ux%u, which cannot be resized to %ux%u; use "
                       "--image-fit windows",
                       info->source, info->height, info->width, size->height, size->width);
    gp_status status = gp_whole_reserve(whole, info->sample_bytes, labelled ? info->target_bytes : 0, err);

    if (status != GP_OK)
        return status;
    whole->height = whole->read_height = info->height;
    whole->width = whole->read_width = info->width;
    return store->ops->read(store, &index, 1, whole->sample, labelled ? whole->labels : NULL, err);
}

gp_status gp_store_read_whole(const gp_store *store, uint32_t index, const gp_whole_size *size,
                              gp_whole *whole, gp_error *err)
{
    gp_status status = index_check(store, &index, 1, store->info.count, err);

    if (status == GP_OK)
        status = (store->ops->read_whole != NULL ? store->ops->read_whole : whole_copy)(store, index, size,
                                                                                        whole, err);

    if (status == GP_OK && store->renumber != NULL && whole->labels != NULL)
        for (size_t i = 0; i < (size_t)whole->height * whole->width; i++)
            if (whole->labels[i] >= 0)
                whole->labels[i] = store->renumber[whole->labels[i]];
    return status;
}

void gp_store_expect(const gp_store *store, const uint32_t *index, uint32_t count)
{
    if (store->ops->expect != NULL)
        store->ops->expect(store, index, count);
}

/* Match the data's classes with the options, and prepare to renumber labels. */
gp_status gp_store_renumber(gp_store *store, const gp_store_options *options, gp_error *err)
{
    const gp_store_info *info = &store->info;
    const char **own = store->class_names;

    if (options->class_count == 0 || info->class_count == 0)
        return GP_OK;
    int32_t *numbers = gp_calloc(info->class_count, sizeof(*numbers));

    if (numbers == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u classes", info->class_count);
    gp_status status = gp_class_match(numbers, &store->info.matched_by_number, info, store->class_empty,
                                      options->class_names, options->class_count, err);

    bool moved = false;

    for (uint32_t i = 0; status == GP_OK && i < info->class_count; i++)
        moved = moved || numbers[i] != (int32_t)i;

    /* Classes matched by number keep the names in the data; the model has no names. */
    if (status != GP_OK || info->matched_by_number || (options->class_names == NULL && !moved)) {
        gp_free(numbers);
        return status;
    }
    store->renumber = numbers;
    store->info.class_count = options->class_count;
    for (uint32_t k = 0; k < info->target_count; k++)
        if (info->targets[k].dtype == GP_I32) {
            store->info.targets[k].classes = options->class_count;
            break;
        }
    /* sets class_names to NULL on failure */
    status = class_names_copy(store, options->class_names, err);
    gp_free(own);
    return status;
}

gp_store_options gp_store_options_for(const gp_shape *input)
{
    if (input->rank != 3)
        return (gp_store_options){ 0 };
    return (gp_store_options){ .channels = (uint32_t)input->dim[0],
                               .height = (uint32_t)input->dim[1],
                               .width = (uint32_t)input->dim[2] };
}

char *gp_store_name(const gp_store *store, uint32_t index, char *text, size_t bytes)
{
    if (store->ops->name != NULL)
        store->ops->name(store, index, text, bytes);
    else
        snprintf(text, bytes, "%u", index + 1);
    return text;
}

uint32_t gp_store_skipped_first(const gp_store *store, uint32_t index[GP_SKIPPED_NAMED_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < GP_SKIPPED_NAMED_MAX; i++) {
        const uint32_t place = atomic_load(&store->skipped_first[i]);

        if (place != 0)
            index[count++] = place - 1;
    }
    return count;
}

bool gp_store_is_skipped(const gp_store *store, uint32_t index)
{
    return store->bad != NULL && (atomic_load(&store->bad[index / 8]) >> index % 8 & 1) != 0;
}

/* Count the missing targets over all samples, or until one sample has a target. */
static gp_status missing_count(const gp_store *store, bool until_found, uint64_t *missing, bool *found,
                               gp_error *err)
{
    const gp_store_info *info = &store->info;
    const uint64_t elements = info->target_bytes / sizeof(int32_t);
    void *targets = gp_malloc(info->target_bytes);
    gp_status status = GP_OK;

    if (targets == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for targets of %zu bytes", info->target_bytes);
    for (uint32_t i = 0; i < info->count && status == GP_OK && !(until_found && *found); i++) {
        status = gp_store_read(store, &i, 1, NULL, targets, err);
        if (status == GP_OK) {
            const uint64_t here = gp_targets_missing(info->targets, info->target_count, targets);

            *missing += here;
            *found |= here < elements;
        }
    }
    gp_free(targets);
    return status;
}

bool gp_store_has_targets(const gp_store *store)
{
    uint64_t missing = 0;
    bool found = false;

    return missing_count(store, true, &missing, &found, NULL) != GP_OK || found;
}

gp_status gp_store_count_missing(const gp_store *store, uint64_t *missing, gp_error *err)
{
    bool found = false;

    *missing = 0;
    return store->info.decodes && !gp_store_has_class(&store->info)
               ? GP_OK
               : missing_count(store, false, missing, &found, err);
}

char *gp_store_left_out(const gp_store *store, char *text, size_t bytes)
{
    const gp_store_info *info = &store->info;

    text[0] = '\0';
    if (info->left_out > 0)
        snprintf(text, bytes, "%.100s: excluded %" PRIu64 " folder%s: %.200s%s", info->source, info->left_out,
                 info->left_out == 1 ? " or image" : "s or images",
                 info->left_out_first != NULL ? info->left_out_first : "", info->left_out > 1 ? "; ..." : "");
    return text;
}

uint64_t gp_store_skipped(const gp_store *store)
{
    return atomic_load(&store->skipped);
}
