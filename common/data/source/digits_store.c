/* Drawn digits as a store in memory, or as a directory of IDX files. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/data/image/image.h"
#include "common/data/source/digits.h"
#include "common/data/format/idx.h"
#include "common/data/source/sources.h"
#include "common/data/store/store_ops.h"

enum { COUNT_DEFAULT = 60000, TEST_SHARE = 6, REPORT_EACH = 256 };

typedef struct digits_request {
    uint32_t first, count;
    const gp_progress *progress;
} digits_request;

static void digits_report(const gp_progress *progress, uint64_t done, uint64_t count)
{
    if (done % REPORT_EACH == 0 || done == count)
        gp_progress_report(progress, "drawing", "digits", done, count);
}

/* Draw all digits: the pixels, followed by the labels. Implements gp_decoder. */
static gp_status digits_decode(void *context, void *to, size_t bytes, gp_error *err)
{
    const digits_request *request = context;
    uint8_t *samples = to;
    int32_t *labels = (int32_t *)(void *)(samples + (size_t)request->count * GP_DIGITS_PIXELS);

    (void)err;
    assert(bytes == (size_t)request->count * (GP_DIGITS_PIXELS + sizeof(*labels)));
    for (uint32_t i = 0; i < request->count; i++) {
        labels[i] =
            gp_digits_draw(samples + (size_t)i * GP_DIGITS_PIXELS, GP_DIGITS_SEED, request->first + i);
        digits_report(request->progress, i + 1, request->count);
    }
    return GP_OK;
}

/* Parse `rest`, the text after "digits:": a count, or "" for the default. Return false if it is
 * malformed. */
static bool count_parse(uint32_t *count, const char *rest)
{
    int end = 0;

    *count = COUNT_DEFAULT;
    return rest[0] == '\0' ||
           (sscanf(rest, "%8u%n", count, &end) == 1 && rest[end] == '\0' && strpbrk(rest, "+- \t") == NULL &&
            *count >= 1 && *count <= GP_DIGITS_COUNT_MAX);
}

static size_t digits_bytes(uint32_t count)
{
    return (size_t)count * (GP_DIGITS_PIXELS + sizeof(int32_t));
}

bool gp_digits_are_cached(const char *source)
{
    uint32_t count;

    return count_parse(&count, gp_source_after_word(source, "digits")) &&
           digits_bytes(count) / TEST_SHARE >= GP_DECODED_BYTES_MIN &&
           digits_bytes(count) <= GP_DECODED_CACHE_BYTES / 2;
}

gp_status gp_store_open_digits(gp_store **out, const char *source, gp_data_role role,
                               const gp_store_options *options, gp_error *err)
{
    const char *rest = gp_source_after_word(source, "digits");
    const bool test = role != GP_DATA_TRAIN; /* both parts always exist */
    gp_store_info info = { .source = source,
                           .kind = "digits",
                           .channels = 1,
                           .height = GP_DIGITS_SIDE,
                           .width = GP_DIGITS_SIDE,
                           .dtype = GP_U8,
                           .class_count = 10 };
    digits_request request = { .progress = options->progress };
    gp_decoded decoded;
    gp_status status;
    char key[80];
    size_t bytes;

    if (!count_parse(&info.count, rest) || (rest[0] == '\0' && source[strlen("digits")] == ':'))
        return gp_fail(err, GP_EINVAL, "\"%s\" must be digits or digits:COUNT with a COUNT of 1 to %d",
                       source, GP_DIGITS_COUNT_MAX);
    if (test)
        info.count = (info.count + TEST_SHARE - 1) / TEST_SHARE;
    request.count = info.count;
    request.first = test ? GP_DIGITS_TEST_FIRST : 0;
    bytes = digits_bytes(info.count);
    snprintf(key, sizeof(key), "digits %d seed %d first %u count %u", GP_DIGITS_VERSION, GP_DIGITS_SEED,
             request.first, request.count);
    status = gp_decoded_get(&decoded, bytes < GP_DECODED_BYTES_MIN ? NULL : key, bytes, digits_decode,
                            &request, err);
    return status == GP_OK
               ? gp_store_open_decoded(out, &info, &decoded,
                                       decoded.data + (size_t)info.count * GP_DIGITS_PIXELS, NULL, err)
               : status;
}

/* Progress state while one part is written. */
typedef struct digits_part {
    const gp_progress *progress;
    uint64_t before, total; /* digits in earlier parts; digits in all parts */
} digits_part;

/* Write one part's image and label files. */
static gp_status pair_write(const char *directory, const char *prefix, uint32_t first, uint32_t count,
                            uint64_t seed, const digits_part *part, gp_error *err)
{
    char path[PATH_MAX];
    gp_idx images = { .rank = 3,
                      .dim = { count, GP_DIGITS_SIDE, GP_DIGITS_SIDE },
                      .bytes = (size_t)count * GP_DIGITS_PIXELS };
    gp_idx labels = { .rank = 1, .dim = { count }, .bytes = count };
    gp_status status = GP_OK;

    uint8_t *pixels = gp_malloc(images.bytes), *classes = gp_malloc(labels.bytes);

    images.data = pixels;
    labels.data = classes;
    if (pixels == NULL || classes == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for %u digits", count);
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        classes[i] = (uint8_t)gp_digits_draw(pixels + (size_t)i * GP_DIGITS_PIXELS, seed, first + i);
        digits_report(part->progress, part->before + i + 1, part->total);
    }
    if (status == GP_OK) {
        snprintf(path, sizeof(path), "%s/%s-images-idx3-ubyte.gz", directory, prefix);
        status = gp_idx_write(path, &images, true, part->progress, err);
    }
    if (status == GP_OK) {
        snprintf(path, sizeof(path), "%s/%s-labels-idx1-ubyte.gz", directory, prefix);
        status = gp_idx_write(path, &labels, true, NULL, err);
    }
    gp_free(pixels);
    gp_free(classes);
    return status;
}

/* Format the path of one image: DIRECTORY/PART/CLASS/NUMBER.png. */
static void image_path(char path[PATH_MAX], const char *directory, const char *name, uint32_t first,
                       uint32_t i)
{
    snprintf(path, PATH_MAX, "%s/%s/%" PRIu32 "/%06" PRIu32 ".png", directory, name, (first + i) % 10, i + 1);
}

/* Write one part as RGB images in class folders. */
static gp_status images_write(const char *directory, const char *name, uint32_t first, uint32_t count,
                              uint64_t seed, const digits_part *part, gp_error *err)
{
    uint8_t pixels[GP_DIGITS_PIXELS], rgb[3 * GP_DIGITS_PIXELS];
    char path[PATH_MAX];
    gp_status status = GP_OK;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (mkdir(path, 0777) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot create the directory %s", path);
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        uint8_t *file = NULL;
        size_t bytes;

        image_path(path, directory, name, first, i);
        if (i < 10) {
            char *slash = strrchr(path, '/');

            *slash = '\0';
            if (mkdir(path, 0777) != 0)
                return gp_fail_errno(err, GP_EIO, "cannot create the directory %s", path);
            *slash = '/';
        }
        gp_digits_draw(pixels, seed, first + i);
        for (size_t j = 0; j < sizeof(rgb); j++)
            rgb[j] = pixels[j / 3];
        status = gp_image_to_png(&file, &bytes, rgb, GP_DIGITS_SIDE, GP_DIGITS_SIDE, err);
        if (status == GP_OK)
            status = gp_file_write(path, file, bytes, err);
        gp_free(file);
        digits_report(part->progress, part->before + i + 1, part->total);
    }
    return status;
}

/* Remove the images and folders of one part, if they exist. */
static void images_remove(const char *directory, const char *name, uint32_t first, uint32_t count)
{
    char path[PATH_MAX];

    for (uint32_t i = count; i-- > 0;) {
        image_path(path, directory, name, first, i);
        unlink(path);
        *strrchr(path, '/') = '\0';
        if (i < 10) /* the folder is empty now */
            rmdir(path);
    }
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    rmdir(path);
}

/* Return whether a directory is empty or does not exist, so that a rename can replace it. */
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

gp_status gp_digits_write(const char *directory, gp_digits_format format, uint32_t train_count,
                          uint32_t test_count, uint64_t seed, const gp_progress *progress, gp_error *err)
{
    gp_status (*write_part)(const char *, const char *, uint32_t, uint32_t, uint64_t, const digits_part *,
                            gp_error *) = format == GP_DIGITS_PNG ? images_write : pair_write;
    const char *test_name = format == GP_DIGITS_PNG ? "test" : "t10k";
    const uint64_t total = (uint64_t)train_count + test_count;
    /* next to the directory, for the rename; leaves room for file names */
    char draft[PATH_MAX - 64], path[PATH_MAX];
    size_t length = strlen(directory);
    gp_status status;

    if (train_count < 1 || train_count > GP_DIGITS_COUNT_MAX || test_count < 1 ||
        test_count > GP_DIGITS_COUNT_MAX)
        return gp_fail(err, GP_EINVAL,
                       "%u training and %u test digits requested; must be between 1 and %d each", train_count,
                       test_count, GP_DIGITS_COUNT_MAX);
    while (length > 1 && directory[length - 1] == '/')
        length--;
    if ((size_t)snprintf(draft, sizeof(draft), "%.*s.draft-%d", (int)length, directory, (int)getpid()) >=
        sizeof(draft))
        return gp_fail(err, GP_ELIMIT, "the path %s is too long", directory);
    if (!directory_is_free(directory))
        return gp_fail(err, GP_ESTATE, "%s exists and is not an empty directory; use another path",
                       directory);
    if (mkdir(draft, 0777) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot create the directory %s", draft);
    status = write_part(draft, "train", 0, train_count, seed, &(digits_part){ progress, 0, total }, err);
    if (status == GP_OK)
        status = write_part(draft, test_name, GP_DIGITS_TEST_FIRST, test_count, seed,
                            &(digits_part){ progress, train_count, total }, err);
    if (status == GP_OK && rename(draft, directory) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", draft, directory);
    if (status != GP_OK && format == GP_DIGITS_PNG) {
        images_remove(draft, "train", 0, train_count);
        images_remove(draft, test_name, GP_DIGITS_TEST_FIRST, test_count);
    }
    for (int i = 0; status != GP_OK && format == GP_DIGITS_IDX && i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s-%s-ubyte.gz", draft, i < 2 ? "train" : "t10k",
                 i % 2 == 0 ? "images-idx3" : "labels-idx1");
        unlink(path);
    }
    if (status != GP_OK)
        rmdir(draft);
    return status;
}
