/* arrays.c: the caller's arrays as a data source; public interface to
 * common/data/source/shared_arrays.h (shared arrays). */
#include <stddef.h>
#include <unistd.h>

#include "client/gradpool.h"
#include "common/base/memory/alloc.h"
#include "common/data/source/shared_arrays.h"

struct gp_array_dataset {
    int fd;
    gp_lender *lender;
    char source[GP_SHARED_ARRAYS_SOURCE_BYTES];
};

/* Check and convert an array description. GP_EINVAL: not exactly one of classes and values
 * is given. */
static gp_status info_of(gp_store_info *out, const gp_array_dataset_info *given, gp_error *err)
{
    *out = (gp_store_info){ .source = "arrays",
                            .kind = "arrays",
                            .count = given->count,
                            .channels = given->channels,
                            .height = given->height,
                            .width = given->width,
                            .dtype = given->floats ? GP_F32 : GP_U8,
                            .target_count = 1,
                            .class_count = given->class_count,
                            .class_names = given->class_names };
    if ((given->values > 0) == (given->class_count > 0))
        return gp_fail(err, GP_EINVAL,
                       "the arrays have %u classes and %u values for each sample; give one of them",
                       given->class_count, given->values);
    if (given->values > 0 && given->pixel_labels)
        return gp_fail(err, GP_EINVAL, "pixel_labels are classes; set values to 0");
    out->targets[0] = (gp_target){ .dtype = given->values > 0 ? GP_F32 : GP_I32 };
    if (given->values > 0)
        out->targets[0].shape = (gp_shape){ .rank = 1, .dim = { given->values } };
    else if (given->pixel_labels)
        out->targets[0].shape = gp_shape2(given->height, given->width);
    return GP_OK;
}

gp_status gp_array_dataset_new(gp_array_dataset **out, const gp_array_dataset_info *given,
                               const void *samples, const void *targets, gp_error *err)
{
    gp_array_dataset *arrays;
    gp_store_info info;
    gp_status status = info_of(&info, given, err);

    if (status == GP_OK && (samples == NULL || targets == NULL))
        status = gp_fail(err, GP_EINVAL, "the arrays have no samples or no targets");
    if (status != GP_OK)
        return status;
    arrays = gp_calloc(1, sizeof(*arrays));
    if (arrays == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the name of arrays");
    arrays->fd = -1;
    status = gp_shared_arrays_make(&arrays->fd, arrays->source, &info, samples, targets, err);
    if (status == GP_OK)
        status = gp_shared_arrays_serve(&arrays->lender, arrays->fd, arrays->source, err);
    if (status != GP_OK) {
        gp_array_dataset_free(arrays);
        return status;
    }
    *out = arrays;
    return GP_OK;
}

const char *gp_array_dataset_source(const gp_array_dataset *arrays)
{
    return arrays->source;
}

void gp_array_dataset_free(gp_array_dataset *arrays)
{
    if (arrays == NULL)
        return;
    gp_shared_arrays_serve_end(arrays->lender);
    if (arrays->fd >= 0)
        close(arrays->fd);
    gp_free(arrays);
}
