/* data_count.c: inspect a data source: count samples, classes, and the samples per class. */

#include "client/gradpool.h"
#include "common/base/memory/alloc.h"
#include "common/data/store/subset.h"

struct gp_dataset {
    gp_dataset_info info;
    gp_store *store; /* owns the names and texts in `info` */
    uint64_t *counts;
};

static gp_status counts_fill(gp_dataset *c, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(c->store);

    c->counts = gp_calloc((size_t)info->class_count + 1, sizeof(*c->counts));
    if (c->counts == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to count %u classes", info->class_count);
    c->info = (gp_dataset_info){ .kind = info->kind,
                                 .samples = info->count,
                                 .channels = info->channels,
                                 .height = info->height,
                                 .width = info->width,
                                 .sizes_differ = info->sizes_differ,
                                 .pixel_labels = info->class_count > 0 && !gp_store_has_class(info),
                                 .class_count = info->class_count,
                                 .class_names = info->class_names,
                                 .counts = c->counts };
    return gp_store_count_within(c->store, c->counts, NULL, NULL, err);
}

gp_status gp_dataset_inspect(gp_dataset **out, const char *source, bool test, gp_error *err)
{
    const gp_store_options options = { .any_size = true, .cache_bytes = 1 };
    gp_dataset *c = gp_calloc(1, sizeof(*c));
    gp_status status;

    if (c == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to count %s", source);
    status = gp_store_open_with(&c->store, source, test ? GP_DATA_TEST : GP_DATA_TRAIN, &options, err);
    if (status == GP_OK)
        status = counts_fill(c, err);
    if (status != GP_OK) {
        gp_dataset_free(c);
        return status;
    }
    *out = c;
    return GP_OK;
}

const gp_dataset_info *gp_dataset_get_info(const gp_dataset *counts)
{
    return &counts->info;
}

void gp_dataset_free(gp_dataset *counts)
{
    if (counts == NULL)
        return;
    gp_store_close(counts->store);
    gp_free(counts->counts);
    gp_free(counts);
}
