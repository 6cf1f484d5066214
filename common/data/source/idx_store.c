/* A store over a directory with four IDX files, as published for MNIST and similar data sets. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/data/format/idx.h"
#include "common/data/source/sources.h"
#include "common/data/store/store_ops.h"

enum { CLASSES_BYTES_MAX = 1 << 20, LABEL_COUNT = 256 };

static const char *const role_prefix[] = { [GP_DATA_TRAIN] = "train", [GP_DATA_TEST] = "t10k" };

/* From github.com/zalandoresearch/fashion-mnist, "Labels". */
static const char *const fashion_names[] = { "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                             "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot" };

/* Class names from classes.txt, pointing into `text`. */
typedef struct class_list {
    uint8_t *text;
    const char **name;
    uint32_t count;
} class_list;

/* Read classes.txt: one name per line; empty lines at the end are ignored. list->count remains 0 if
 * there is no such file. */
static gp_status class_list_read(class_list *list, const char *directory, gp_error *err)
{
    char path[PATH_MAX];
    size_t bytes;
    gp_status status;

    if ((size_t)snprintf(path, sizeof(path), "%s/classes.txt", directory) >= sizeof(path))
        return gp_fail(err, GP_ELIMIT, "the path %s is too long", directory);
    status = gp_file_read(&list->text, &bytes, path, CLASSES_BYTES_MAX, err);
    if (status != GP_OK)
        return status == GP_ENOENT ? GP_OK : status;
    list->name = gp_calloc(LABEL_COUNT, sizeof(*list->name));
    if (list->name == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the class names of %s", path);
    for (char *line = (char *)list->text, *next; line != NULL && line[strspn(line, "\r\n")] != '\0';
         line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        line[strcspn(line, "\r")] = '\0';
        if (*line == '\0')
            return gp_fail(err, GP_ECORRUPT, "line %u of %s is empty; it must be a class name",
                           list->count + 1, path);
        if (list->count == LABEL_COUNT)
            return gp_fail(err, GP_ELIMIT, "%s has more than %d class names, the limit of byte labels", path,
                           LABEL_COUNT);
        list->name[list->count++] = line;
    }
    return list->count > 0 ? GP_OK
                           : gp_fail(err, GP_ECORRUPT,
                                     "%s has no class names; write one per line or remove the file", path);
}

/* Find a file, either plain or with the ending .gz. GP_ENOENT, without a message: neither
 * exists. */
static gp_status file_find(char *path, size_t bytes, const char *directory, const char *prefix,
                           const char *rest)
{
    static const char *const suffix[] = { "", ".gz" };

    for (int i = 0; i < 2; i++)
        if ((size_t)snprintf(path, bytes, "%s/%s-%s%s", directory, prefix, rest, suffix[i]) < bytes &&
            access(path, F_OK) == 0)
            return GP_OK;
    return GP_ENOENT;
}

bool gp_store_is_idx(const char *directory)
{
    char path[PATH_MAX];

    for (int role = GP_DATA_TRAIN; role <= GP_DATA_TEST; role++)
        if (file_find(path, sizeof(path), directory, role_prefix[role], "images-idx3-ubyte") == GP_OK ||
            file_find(path, sizeof(path), directory, role_prefix[role], "labels-idx1-ubyte") == GP_OK)
            return true;
    return false;
}

static gp_status file_require(char *path, size_t bytes, const char *directory, gp_data_role role,
                              const char *rest, gp_error *err)
{
    const char *prefix = role_prefix[role];
    char other[PATH_MAX];

    if (file_find(path, bytes, directory, prefix, rest) == GP_OK)
        return GP_OK;
    if (file_find(other, sizeof(other), directory, role_prefix[!role], rest) == GP_OK)
        return gp_fail(err, GP_ENOENT, "%s has no %s data: %s-%s[.gz] does not exist beside %s", directory,
                       role == GP_DATA_TRAIN ? "training" : "test", prefix, rest, strrchr(other, '/') + 1);
    return gp_fail(err, GP_ENOENT,
                   "%s is not a supported data set: it has neither class folders of images nor %s-%s[.gz] "
                   "(IDX files, as written by `gradpool data make digits DIR`)",
                   directory, prefix, rest);
}

static uint32_t label_max(const gp_idx *labels)
{
    uint8_t max = 0;

    for (size_t i = 0; i < labels->bytes; i++)
        if (labels->data[i] > max)
            max = labels->data[i];
    return max;
}

/* Derive the class count from the largest label in either part. A network trained on one part must
 * fit the other. */
static gp_status class_count_guess(uint32_t *count, const char *directory, gp_data_role role,
                                   const gp_idx *labels, gp_error *err)
{
    char path[PATH_MAX];
    gp_idx other;
    gp_status status;
    uint32_t max = label_max(labels);

    if (file_find(path, sizeof(path), directory, role_prefix[!role], "labels-idx1-ubyte") == GP_OK) {
        status = gp_idx_read(&other, path, 1, err);
        if (status != GP_OK)
            return status;
        if (label_max(&other) > max)
            max = label_max(&other);
        gp_idx_deinit(&other);
    }
    *count = max + 1;
    return GP_OK;
}

static bool is_fashion(const char *directory)
{
    char path[PATH_MAX];
    const char *name;
    size_t length = strlen(directory);

    while (length > 1 && directory[length - 1] == '/')
        length--;
    if (length >= sizeof(path))
        return false;
    memcpy(path, directory, length);
    path[length] = '\0';
    name = strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1;
    return strcasecmp(name, "fashion-mnist") == 0 || strcasecmp(name, "fashion_mnist") == 0 ||
           strcasecmp(name, "fashionmnist") == 0;
}

/* Determine class count and names, and check every label here, where the file name for the message
 * is known. */
static gp_status classes_decide(gp_store_info *info, class_list *list, const char *directory,
                                gp_data_role role, const gp_idx *labels, const char *labels_path,
                                gp_error *err)
{
    gp_status status = class_list_read(list, directory, err);

    if (status != GP_OK)
        return status;
    if (list->count > 0) {
        info->class_count = list->count;
        info->class_names = list->name;
    } else if (is_fashion(directory)) {
        info->class_count = sizeof(fashion_names) / sizeof(fashion_names[0]);
        info->class_names = fashion_names;
    } else {
        return class_count_guess(&info->class_count, directory, role, labels, err);
    }
    for (size_t i = 0; i < labels->bytes; i++)
        if (labels->data[i] >= info->class_count)
            return gp_fail(err, GP_ECORRUPT,
                           "%s: the label of sample %zu is %u, but %s has %u classes (0 to %u)", labels_path,
                           i, labels->data[i], list->count > 0 ? "classes.txt" : "Fashion-MNIST",
                           info->class_count, info->class_count - 1);
    return GP_OK;
}

gp_status gp_store_open_idx(gp_store **out, const char *directory, gp_data_role role,
                            const gp_store_options *options, gp_error *err)
{
    char images_path[PATH_MAX], labels_path[PATH_MAX];
    gp_store_info info = { .source = directory, .kind = "idx", .channels = 1, .dtype = GP_U8 };
    gp_idx images = { 0 }, labels = { 0 };
    class_list list = { 0 };
    gp_status status;

    (void)options;
    role = role == GP_DATA_TRAIN ? GP_DATA_TRAIN : GP_DATA_TEST; /* both parts always exist */
    status = file_require(images_path, sizeof(images_path), directory, role, "images-idx3-ubyte", err);
    if (status == GP_OK)
        status = file_require(labels_path, sizeof(labels_path), directory, role, "labels-idx1-ubyte", err);
    if (status == GP_OK)
        status = gp_idx_read(&labels, labels_path, 1, err);
    if (status == GP_OK)
        status = gp_idx_read(&images, images_path, 3, err);
    if (status == GP_OK && images.dim[0] != labels.dim[0])
        status = gp_fail(err, GP_ECORRUPT, "%s has %u images but %s has %u labels; download both again",
                         images_path, images.dim[0], labels_path, labels.dim[0]);
    if (status == GP_OK)
        status = classes_decide(&info, &list, directory, role, &labels, labels_path, err);
    int32_t *wide = status == GP_OK ? gp_malloc(labels.bytes * sizeof(*wide)) : NULL;

    if (status == GP_OK && wide == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for %zu labels", labels.bytes);
    if (status == GP_OK) {
        for (size_t i = 0; i < labels.bytes; i++)
            wide[i] = labels.data[i];
        info.count = images.dim[0];
        info.height = images.dim[1];
        info.width = images.dim[2];
        status = gp_store_open_decoded(out, &info, &images.decoded, wide, wide, err);
    }
    gp_free(list.text);
    gp_free(list.name);
    gp_idx_deinit(&images);
    gp_idx_deinit(&labels);
    return status;
}
