#include "common/data/store/subset.h"

#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/store/sampler.h"
#include "common/data/store/store_ops.h"

/* Samples per read while counting, if each sample has a single class. */
enum { READ_AT_ONCE = 256 };

/* ---- counting ---- */

/* Count the elements per class in one sample's targets, and add each target's element count to each
 * class that occurs in it. */
static void targets_count(const gp_store_info *info, const int32_t *at, uint64_t *counts, uint64_t *within)
{
    for (uint32_t k = 0; k < info->target_count; k++) {
        const int64_t elements = gp_shape_count(&info->targets[k].shape);
        uint64_t seen[GP_STORE_CLASSES_MAX / 64];

        if (within != NULL)
            memset(seen, 0, sizeof(seen));
        for (int64_t e = 0; info->targets[k].dtype == GP_I32 && e < elements; e++) {
            counts[at[e] < 0 ? info->class_count : (uint32_t)at[e]]++;
            if (within != NULL && at[e] >= 0)
                seen[at[e] / 64] |= (uint64_t)1 << at[e] % 64;
        }
        for (uint32_t c = 0; within != NULL && c < info->class_count; c++)
            if ((seen[c / 64] >> c % 64 & 1) != 0)
                within[c] += (uint64_t)elements;
        at += elements;
    }
}

gp_status gp_store_count_within(const gp_store *store, uint64_t *counts, uint64_t *within,
                                const gp_progress *progress, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);
    uint32_t at_once = gp_store_has_class(info) ? READ_AT_ONCE : 1, index[READ_AT_ONCE];
    uint8_t *targets = gp_malloc(at_once * info->target_bytes);
    gp_status status = GP_OK;

    if (targets == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for targets of %zu bytes", info->target_bytes);
    memset(counts, 0, (info->class_count + 1) * sizeof(*counts));
    if (within != NULL)
        memset(within, 0, info->class_count * sizeof(*within));
    for (uint32_t first = 0; first < info->count && status == GP_OK; first += at_once) {
        uint32_t count = info->count - first < at_once ? info->count - first : at_once;

        for (uint32_t i = 0; i < count; i++)
            index[i] = first + i;
        status = gp_store_read(store, index, count, NULL, targets, err);
        for (uint32_t i = 0; i < count && status == GP_OK; i++)
            targets_count(info, (const int32_t *)(targets + i * info->target_bytes), counts, within);
        gp_progress_report(progress, "reading labels", "samples", (uint64_t)first + count, info->count);
    }
    gp_free(targets);
    return status;
}

/* ---- splitting ---- */

/* Compute how many of a class's `count` samples each part gets. */
static gp_status sizes_decide(uint32_t *size, const double *sizes, uint32_t part_count, uint64_t count,
                              const char *class, gp_error *err)
{
    uint64_t left = count;

    for (uint32_t p = 0; p + 1 < part_count; p++) {
        uint64_t wanted = (uint64_t)(sizes[p] < 1 ? floor(sizes[p] * (double)count + 0.5) : sizes[p]);

        if (sizes[p] < 1 && wanted == 0 && count > 1)
            wanted = 1;
        if (sizes[p] < 1 && wanted >= left) /* leave at least one sample for the last part */
            wanted = left > 1 ? left - 1 : left;
        if (wanted > left)
            return gp_fail(err, GP_EINVAL, "class %s has %llu samples, but %.0f of each class were requested",
                           class, (unsigned long long)count, sizes[p]);
        size[p] = (uint32_t)wanted;
        left -= wanted;
    }
    size[part_count - 1] = (uint32_t)left;
    return GP_OK;
}

/* Assign one class's samples to parts: shuffle them, then fill the parts in order. */
static void class_split(const uint32_t *members, uint32_t count, uint64_t seed, const uint32_t *size,
                        uint8_t *parts)
{
    gp_sampler sampler;
    uint32_t part = 0, used = 0;

    gp_sampler_init(&sampler, count, GP_SHUFFLE_ONCE, seed);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at;

        while (used == size[part]) {
            part++;
            used = 0;
        }
        gp_sampler_get(&sampler, 0, i, 1, &at);
        parts[members[at]] = (uint8_t)part;
        used++;
    }
}

static gp_status sizes_check(const double *sizes, uint32_t part_count, gp_error *err)
{
    double shares = 0;

    for (uint32_t p = 0; p + 1 < part_count; p++) {
        if (!(sizes[p] > 0) || sizes[p] > GP_STORE_SAMPLES_MAX ||
            (sizes[p] >= 1 && sizes[p] != floor(sizes[p])))
            return gp_fail(
                err, GP_EINVAL,
                "invalid part %g: must be a fraction between 0 and 1, or a whole number of samples per class",
                sizes[p]);
        shares += sizes[p] < 1 ? sizes[p] : 0;
    }
    if (shares > 1)
        return gp_fail(err, GP_EINVAL, "the fractions have the sum %g, more than 1", shares);
    return GP_OK;
}

gp_status gp_store_split(const gp_store *store, const double *sizes, uint32_t part_count, uint64_t seed,
                         uint8_t *parts, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);
    uint32_t classes = info->class_count + 1, size[GP_SPLIT_PARTS_MAX], *first, *members;
    int32_t *labels;
    uint64_t *counts;
    gp_status status = sizes_check(sizes, part_count, err);

    if (status != GP_OK)
        return status;
    if (!gp_store_has_class(info))
        return gp_fail(err, GP_EINVAL, "%s has no class per sample; it cannot be split", info->source);
    first = gp_calloc(classes, sizeof(*first));
    counts = gp_calloc(classes, sizeof(*counts));
    members = gp_calloc(info->count, sizeof(*members));
    labels = gp_calloc(info->count, sizeof(*labels));
    if (first == NULL || counts == NULL || members == NULL || labels == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for the split of %u samples", info->count);
    if (status == GP_OK)
        status = gp_store_count_within(store, counts, NULL, NULL, err);
    for (uint32_t i = 0; i < info->count && status == GP_OK; i++)
        status = gp_store_read(store, &i, 1, NULL, labels + i, err);
    if (status == GP_OK) { /* sort sample indices by class; class k starts at members[first[k]] */
        for (uint32_t k = 1; k < classes; k++)
            first[k] = first[k - 1] + (uint32_t)counts[k - 1];
        for (uint32_t i = 0; i < info->count; i++)
            members[first[labels[i] < 0 ? info->class_count : (uint32_t)labels[i]]++] = i;
        for (uint32_t k = 0; k < classes; k++)
            first[k] -= (uint32_t)counts[k];
    }
    for (uint32_t k = 0; k < classes && status == GP_OK; k++) {
        if (counts[k] == 0)
            continue;
        status = sizes_decide(size, sizes, part_count, counts[k],
                              k < info->class_count ? info->class_names[k] : "(none)", err);
        if (status == GP_OK)
            class_split(members + first[k], (uint32_t)counts[k], seed + k, size, parts);
    }
    gp_free(first);
    gp_free(counts);
    gp_free(members);
    gp_free(labels);
    return status;
}
