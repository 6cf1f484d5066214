/* A store over mapped .npy files: one array of samples and one of targets.
 *
 * File names: x.npy and y.npy, train-x.npy, x_train.npy, images.npy and labels.npy. In a name, x is
 * replaced by y, and images by labels.
 *   samples  [N, H, W], [N, C, H, W], [N, H, W, C], or [N, F]; C is last if the last dimension is
 *            1, 3 or 4 and the second is not
 *   targets  integers [N] or [N, 1]: a class; [N, H, W]: a class per pixel;
 *            floats [N] or [N, ...]: values */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/data/format/npy.h"
#include "common/data/source/sources.h"
#include "common/data/store/store_ops.h"

typedef struct npy_store {
    gp_store store;
    gp_npy x, y;             /* samples and targets; y.map NULL: no targets */
    bool channels_last;      /* layout [N, H, W, C] */
    size_t x_count, y_count; /* elements in one sample; elements in one target */
} npy_store;

/* ---- reading ---- */

static float element_float(const gp_npy *npy, size_t at)
{
    switch (npy->dtype) {
    case GP_U8:
        return ((const uint8_t *)npy->data)[at];
    case GP_I32:
        return (float)((const int32_t *)npy->data)[at];
    case GP_I64:
        return (float)((const int64_t *)npy->data)[at];
    case GP_F64:
        return (float)((const double *)npy->data)[at];
    default:
        return ((const float *)npy->data)[at];
    }
}

static int64_t element_integer(const gp_npy *npy, size_t at)
{
    return npy->dtype == GP_U8    ? ((const uint8_t *)npy->data)[at]
           : npy->dtype == GP_I32 ? ((const int32_t *)npy->data)[at]
                                  : ((const int64_t *)npy->data)[at];
}

/* Return the array position of element i in a packed CHW sample. */
static size_t element_at(const npy_store *npy, size_t i)
{
    const gp_store_info *info = &npy->store.info;
    size_t plane = (size_t)info->height * info->width;

    return npy->channels_last ? i % plane * info->channels + i / plane : i;
}

static void sample_copy(const npy_store *npy, uint32_t index, void *out)
{
    size_t begin = index * npy->x_count, bytes = gp_dtype_bytes(npy->x.dtype);

    if (npy->x.dtype == npy->store.info.dtype && !npy->channels_last) {
        memcpy(out, (const uint8_t *)npy->x.data + begin * bytes, npy->x_count * bytes);
        return;
    }
    for (size_t i = 0; i < npy->x_count; i++)
        if (npy->x.dtype == GP_U8)
            ((uint8_t *)out)[i] = ((const uint8_t *)npy->x.data)[begin + element_at(npy, i)];
        else
            ((float *)out)[i] = element_float(&npy->x, begin + element_at(npy, i));
}

static gp_status npy_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                          void *targets, gp_error *err)
{
    const npy_store *npy = (const npy_store *)store;
    int32_t *integers = targets;
    float *floats = targets;

    (void)err;
    for (uint32_t i = 0; samples != NULL && i < count; i++)
        sample_copy(npy, index[i], (uint8_t *)samples + i * store->info.sample_bytes);
    for (size_t i = 0; targets != NULL && i < count * npy->y_count; i++) {
        const size_t at = index[i / npy->y_count] * npy->y_count + i % npy->y_count;

        if (npy->y.map == NULL)
            integers[i] = -1;
        else if (store->info.targets[0].dtype == GP_I32)
            integers[i] = (int32_t)element_integer(&npy->y, at);
        else
            floats[i] = element_float(&npy->y, at);
    }
    return GP_OK;
}

static void npy_close(gp_store *store)
{
    npy_store *npy = (npy_store *)store;

    gp_npy_close(&npy->x);
    gp_npy_close(&npy->y);
    gp_store_deinit(store);
    gp_free(npy);
}

static const gp_store_ops npy_ops = { .read = npy_read, .close = npy_close };

/* ---- names ---- */

/* Replace the last occurrence of `word` in the file name that is not part of a longer word. Return
 * false if there is none. */
static bool name_replace(char *out, size_t bytes, const char *path, const char *word, const char *by)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1, *found = NULL;
    size_t length = strlen(word);

    for (const char *at = name; *at != '\0'; at++)
        if (strncasecmp(at, word, length) == 0 && !isalpha((unsigned char)at[length]) &&
            (at == name || !isalpha((unsigned char)at[-1])))
            found = at;
    return found != NULL &&
           (size_t)snprintf(out, bytes, "%.*s%s%s", (int)(found - path), path, by, found + length) < bytes;
}

/* Find the file with the targets for a file with samples. Return false if there is none. */
static bool targets_find(char path[PATH_MAX], const gp_npy_files *files, const char *samples)
{
    static const char *const pairs[][2] = {
        { "x", "y" }, { "x", "Y" }, { "images", "labels" }, { "images", "targets" }, { "data", "labels" }
    };

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (name_replace(path, PATH_MAX, samples, pairs[i][0], pairs[i][1]) &&
            files->exists(files->context, path))
            return true;
    return false;
}

/* Find the file with the samples for a role in a directory. Return false if there is none. */
static bool samples_find(char path[PATH_MAX], const gp_npy_files *files, const char *directory,
                         gp_data_role role)
{
    static const char *const parts[3][6] = { [GP_DATA_TRAIN] = { "train", NULL },
                                             [GP_DATA_TEST] = { "val", "valid", "validation", "test", NULL },
                                             [GP_DATA_GIVEN] = { "test", "val", "valid", "validation",
                                                                 NULL } };
    static const char *const forms[] = { "%s/%s-x.npy", "%s/%s_x.npy",      "%s/x-%s.npy",
                                         "%s/x_%s.npy", "%s/%s-images.npy", "%s/%s_images.npy" };
    static const char *const whole[] = { "x.npy", "X.npy", "images.npy" };

    for (int p = 0; parts[role][p] != NULL; p++)
        for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
            if ((size_t)snprintf(path, PATH_MAX, forms[i], directory, parts[role][p]) < PATH_MAX &&
                files->exists(files->context, path))
                return true;
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]) && role != GP_DATA_TEST; i++)
        if ((size_t)snprintf(path, PATH_MAX, "%s/%s", directory, whole[i]) < PATH_MAX &&
            files->exists(files->context, path))
            return true;
    return false;
}

static bool file_exists(void *context, const char *path)
{
    (void)context;
    return access(path, F_OK) == 0;
}

static gp_status file_open(void *context, gp_npy *out, const char *path, gp_error *err)
{
    (void)context;
    return gp_npy_open(out, path, err);
}

static const gp_npy_files local_files = { .exists = file_exists, .open = file_open };

bool gp_npy_is_listed(const char *directory, gp_npy_exists exists, void *context)
{
    gp_npy_files files = { .exists = exists, .context = context };
    char path[PATH_MAX];

    return samples_find(path, &files, directory, GP_DATA_TRAIN) ||
           samples_find(path, &files, directory, GP_DATA_GIVEN);
}

bool gp_store_is_npy(const char *directory)
{
    return gp_npy_is_listed(directory, file_exists, NULL);
}

/* ---- shapes ---- */

static bool is_colour(int64_t side)
{
    return side == 1 || side == 3 || side == 4;
}

/* Derive the sample shape and layout from the array's shape. */
static gp_status samples_describe(npy_store *npy, gp_store_info *info, const char *path, gp_error *err)
{
    const int64_t *dim = npy->x.shape.dim;
    int64_t channels = 1, height = 1, width;
    char shape[80];

    switch (npy->x.shape.rank) {
    case 2:
        width = dim[1];
        break;
    case 3:
        height = dim[1];
        width = dim[2];
        break;
    case 4:
        npy->channels_last = is_colour(dim[3]) && !is_colour(dim[1]);
        channels = npy->channels_last ? dim[3] : dim[1];
        height = npy->channels_last ? dim[1] : dim[2];
        width = npy->channels_last ? dim[2] : dim[3];
        break;
    default:
        return gp_fail(
            err, GP_EINVAL,
            "%s is an array of shape %s; samples must be [N, H, W], [N, C, H, W], [N, H, W, C] or [N, F]",
            path, gp_shape_format(&npy->x.shape, shape, sizeof(shape)));
    }
    if (dim[0] < 1 || dim[0] > GP_STORE_SAMPLES_MAX || channels > GP_STORE_CHANNELS_MAX ||
        height > GP_STORE_SIDE_MAX || width > GP_STORE_SIDE_MAX || channels * height * width == 0)
        return gp_fail(
            err, GP_ELIMIT,
            "%s is an array of shape %s; at most %d samples, %d channels and sides of %d are supported", path,
            gp_shape_format(&npy->x.shape, shape, sizeof(shape)), GP_STORE_SAMPLES_MAX, GP_STORE_CHANNELS_MAX,
            GP_STORE_SIDE_MAX);
    info->count = (uint32_t)dim[0];
    info->channels = (uint32_t)channels;
    info->height = (uint32_t)height;
    info->width = (uint32_t)width;
    info->dtype = npy->x.dtype == GP_U8 ? GP_U8 : GP_F32;
    npy->x_count = (size_t)(channels * height * width);
    return GP_OK;
}

/* Raise *count to the number of classes in integer targets. GP_ECORRUPT: a value below -1, or too
 * large. */
static gp_status classes_count(const gp_npy *y, const char *path, uint32_t *count, gp_error *err)
{
    int64_t elements = gp_shape_count(&y->shape), largest = 0;

    for (int64_t i = 0; i < elements; i++) {
        int64_t value = element_integer(y, (size_t)i);

        if (value < -1 || value >= GP_STORE_CLASSES_MAX)
            return gp_fail(err, GP_ECORRUPT,
                           "%s: element %lld is %lld; classes must be 0 to %d, or -1 for no class", path,
                           (long long)i, (long long)value, GP_STORE_CLASSES_MAX - 1);
        largest = value > largest ? value : largest;
    }
    if (largest + 1 > *count)
        *count = (uint32_t)largest + 1;
    return GP_OK;
}

static gp_status targets_describe(npy_store *npy, gp_store_info *info, const char *path, gp_error *err)
{
    gp_target *target = &info->targets[0];
    char shape[80];

    info->target_count = 1;
    target->dtype = npy->y.dtype == GP_F32 || npy->y.dtype == GP_F64 ? GP_F32 : GP_I32;
    if (npy->y.shape.rank < 1 || npy->y.shape.dim[0] != info->count)
        return gp_fail(err, GP_ECORRUPT, "%s is an array of shape %s, but there are %u samples", path,
                       gp_shape_format(&npy->y.shape, shape, sizeof(shape)), info->count);
    target->shape = (gp_shape){ .rank = npy->y.shape.rank - 1 };
    for (uint32_t i = 0; i < target->shape.rank; i++)
        target->shape.dim[i] = npy->y.shape.dim[i + 1];
    if (target->dtype == GP_I32 && target->shape.rank == 1 && target->shape.dim[0] == 1)
        target->shape.rank = 0;
    npy->y_count = (size_t)gp_shape_count(&target->shape);
    return target->dtype == GP_I32 ? classes_count(&npy->y, path, &info->class_count, err) : GP_OK;
}

/* Count the classes in the other part, too: a network trained on one part must fit the other. */
static gp_status other_part_count(gp_store_info *info, const gp_npy_files *files, const char *directory,
                                  const char *ours, gp_error *err)
{
    char samples[PATH_MAX], targets[PATH_MAX];
    gp_status status = GP_OK;

    for (int role = GP_DATA_TRAIN; role <= GP_DATA_TEST && status == GP_OK; role++) {
        gp_npy y;

        if (!samples_find(samples, files, directory, (gp_data_role)role) ||
            !targets_find(targets, files, samples) || strcmp(targets, ours) == 0)
            continue;
        status = files->open(files->context, &y, targets, err);
        if (status != GP_OK)
            break;
        if (y.dtype != GP_F32 && y.dtype != GP_F64)
            status = classes_count(&y, targets, &info->class_count, err);
        gp_npy_close(&y);
    }
    return status;
}

/* Open the arrays for samples and targets, and describe them. */
static gp_status npy_describe(npy_store *npy, gp_store_info *info, const gp_npy_files *files,
                              const char *path, const char *directory, gp_data_role role, gp_error *err)
{
    char targets[PATH_MAX];
    gp_status status = files->open(files->context, &npy->x, path, err);

    if (status == GP_OK)
        status = samples_describe(npy, info, path, err);
    if (status != GP_OK)
        return status;
    if (!targets_find(targets, files, path)) {
        npy->y_count = 1; /* a single target without a class */
        info->class_count = 1;
        return role != GP_DATA_TRAIN ? GP_OK
                                     : gp_fail(err, GP_ENOENT,
                                               "%s has no file with targets; name the samples x.npy and the "
                                               "targets y.npy, or train-x.npy and train-y.npy",
                                               path);
    }
    status = files->open(files->context, &npy->y, targets, err);
    if (status == GP_OK)
        status = targets_describe(npy, info, targets, err);
    if (status == GP_OK && directory != NULL && info->targets[0].dtype == GP_I32)
        status = other_part_count(info, files, directory, targets, err);
    return status;
}

gp_status gp_store_open_npy_files(gp_store **out, const char *path, gp_data_role role,
                                  const gp_npy_files *files, gp_error *err)
{
    gp_store_info info = { .source = path, .kind = "npy" };
    const size_t length = strlen(path);
    bool directory = (files == &local_files || length <= 4 || strcasecmp(path + length - 4, ".npy") != 0) &&
                     gp_npy_is_listed(path, files->exists, files->context);
    char samples[PATH_MAX];
    npy_store *npy;
    gp_status status;

    if (directory ? !samples_find(samples, files, path, role) : role == GP_DATA_TEST)
        return gp_fail(err, GP_ENOENT, "%s has no %s part", path,
                       role == GP_DATA_TRAIN ? "training" : "test");
    if (!directory && (size_t)snprintf(samples, sizeof(samples), "%s", path) >= sizeof(samples))
        return gp_fail(err, GP_ELIMIT, "the path %.200s... is too long", path);
    npy = gp_calloc(1, sizeof(*npy));
    if (npy == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the store of %s", path);
    npy->store.ops = &npy_ops; /* for gp_store_seal() */
    status = npy_describe(npy, &info, files, samples, directory ? path : NULL, role, err);
    if (status == GP_OK)
        status = gp_store_init(&npy->store, &npy_ops, &info, err);
    return gp_store_seal(out, &npy->store, status, err);
}

gp_status gp_store_open_npy(gp_store **out, const char *path, gp_data_role role,
                            const gp_store_options *options, gp_error *err)
{
    (void)options;
    return gp_store_open_npy_files(out, path, role, &local_files, err);
}
