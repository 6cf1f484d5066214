/* digits_store.c -- drawn digits as a store in memory, and as a directory of IDX files. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/data/digits.h"
#include "common/data/idx.h"
#include "common/data/store_ops.h"

enum { COUNT_DEFAULT = 60000, TEST_SHARE = 6 };

gp_status gp_store_open_digits(gp_store **out, const char *source, const char *rest, gp_data_role role,
                               gp_error *err)
{
    gp_store_info info = { .source = source,
                           .kind = "digits",
                           .count = COUNT_DEFAULT,
                           .channels = 1,
                           .height = GP_DIGITS_SIDE,
                           .width = GP_DIGITS_SIDE,
                           .dtype = GP_U8,
                           .class_count = 10 };
    uint8_t *samples;
    int32_t *labels;
    int end = 0;

    if (source[strlen("digits")] == ':' &&
        (sscanf(rest, "%8u%n", &info.count, &end) != 1 || rest[end] != '\0' ||
         strpbrk(rest, "+- \t") != NULL || info.count < 1 || info.count > GP_DIGITS_COUNT_MAX))
        return gp_fail(err, GP_EINVAL, "\"%s\" is not digits or digits:COUNT with a COUNT of 1 to %d", source,
                       GP_DIGITS_COUNT_MAX);
    if (role == GP_DATA_TEST)
        info.count = (info.count + TEST_SHARE - 1) / TEST_SHARE;
    samples = gp_malloc((size_t)info.count * GP_DIGITS_PIXELS);
    labels = gp_malloc((size_t)info.count * sizeof(*labels));
    if (samples == NULL || labels == NULL) {
        gp_free(samples);
        gp_free(labels);
        return gp_fail(err, GP_ENOMEM, "no memory for %u digits", info.count);
    }
    for (uint32_t i = 0; i < info.count; i++)
        labels[i] = gp_digits_draw(samples + (size_t)i * GP_DIGITS_PIXELS, GP_DIGITS_SEED,
                                   (role == GP_DATA_TEST ? GP_DIGITS_TEST_FIRST : 0) + i);
    return gp_store_open_arrays(out, &info, samples, labels, true, err);
}

/* One role's two files. */
static gp_status pair_write(const char *directory, const char *prefix, uint32_t first, uint32_t count,
                            uint64_t seed, gp_error *err)
{
    char path[PATH_MAX];
    gp_idx images = { 3, { count, GP_DIGITS_SIDE, GP_DIGITS_SIDE }, (size_t)count * GP_DIGITS_PIXELS, NULL };
    gp_idx labels = { 1, { count }, count, NULL };
    gp_status status = GP_OK;

    images.data = gp_malloc(images.bytes);
    labels.data = gp_malloc(labels.bytes);
    if (images.data == NULL || labels.data == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for %u digits", count);
    for (uint32_t i = 0; i < count && status == GP_OK; i++)
        labels.data[i] = (uint8_t)gp_digits_draw(images.data + (size_t)i * GP_DIGITS_PIXELS, seed, first + i);
    if (status == GP_OK) {
        snprintf(path, sizeof(path), "%s/%s-images-idx3-ubyte.gz", directory, prefix);
        status = gp_idx_write(path, &images, true, err);
    }
    if (status == GP_OK) {
        snprintf(path, sizeof(path), "%s/%s-labels-idx1-ubyte.gz", directory, prefix);
        status = gp_idx_write(path, &labels, true, err);
    }
    gp_idx_deinit(&images);
    gp_idx_deinit(&labels);
    return status;
}

static const char *const file_names[] = { "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                          "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz" };

static void draft_remove(const char *draft)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof(file_names) / sizeof(file_names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", draft, file_names[i]);
        unlink(path);
    }
    rmdir(draft);
}

/* Not there, or an empty directory: a rename can then put ours in its place. */
static bool directory_is_free(const char *directory)
{
    DIR *listing = opendir(directory);
    struct dirent *entry;
    bool empty = true;

    if (listing == NULL)
        return errno == ENOENT;
    while (empty && (entry = readdir(listing)) != NULL)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(listing);
    return empty;
}

gp_status gp_digits_write(const char *directory, uint32_t train_count, uint32_t test_count, uint64_t seed,
                          gp_error *err)
{
    char draft[PATH_MAX - 64]; /* beside the directory, so that a rename can do; file names fit behind it */
    size_t length = strlen(directory);
    gp_status status;

    if (train_count < 1 || train_count > GP_DIGITS_COUNT_MAX || test_count < 1 ||
        test_count > GP_DIGITS_COUNT_MAX)
        return gp_fail(err, GP_EINVAL,
                       "%u training and %u test digits were asked for; 1 to %d of each are possible",
                       train_count, test_count, GP_DIGITS_COUNT_MAX);
    while (length > 1 && directory[length - 1] == '/')
        length--;
    if ((size_t)snprintf(draft, sizeof(draft), "%.*s.draft-%d", (int)length, directory, (int)getpid()) >=
        sizeof(draft))
        return gp_fail(err, GP_ELIMIT, "the path %s is too long", directory);
    if (!directory_is_free(directory))
        return gp_fail(err, GP_ESTATE, "%s is there already and is not an empty directory; give a new one",
                       directory);
    if (mkdir(draft, 0777) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot make the directory %s", draft);
    status = pair_write(draft, "train", 0, train_count, seed, err);
    if (status == GP_OK)
        status = pair_write(draft, "t10k", GP_DIGITS_TEST_FIRST, test_count, seed, err);
    if (status == GP_OK && rename(draft, directory) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", draft, directory);
    if (status != GP_OK)
        draft_remove(draft);
    return status;
}
