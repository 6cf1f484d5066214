/* Data stores: equally shaped samples with their targets, read by index.
 *
 * A store is read-only once it is open, so any number of threads may read it at the same time. */
#ifndef GP_STORE_H
#define GP_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/base/memory/tensor.h"

enum {
    GP_STORE_CHANNELS_MAX = 64,
    GP_STORE_SIDE_MAX = 8192, /* limit for height and for width */
    GP_STORE_CLASSES_MAX = 65536,
    GP_STORE_SAMPLES_MAX = 1 << 30,
    GP_STORE_TARGETS_MAX = 8,
    GP_STORE_TARGET_MAX = 1 << 28, /* elements in the target of one sample */
};

/* Size limit for arrays in bytes: a store holds its arrays in memory and rejects larger ones. */
#define GP_STORE_BYTES_MAX ((uint64_t)64 << 30)

#define GP_STORE_CACHE_BYTES ((uint64_t)512 << 20)

/* Part of the data to open. */
typedef enum gp_data_role {
    GP_DATA_TRAIN,
    GP_DATA_TEST, /* data for validation: of class folders "val", else "test" */
    /* data named by the user to predict or validate: the test part (else "val"), or all of the data
     * if it has no parts */
    GP_DATA_GIVEN,
} gp_data_role;

/* Treatment of unreadable images. */
typedef enum gp_on_error {
    GP_ON_ERROR_FAIL, /* an unreadable image makes the read fail */
    /* an unreadable image is logged by name and counted; its class becomes -1, which every loss
     * ignores */
    GP_ON_ERROR_SKIP,
} gp_on_error;

/* Conversion of images and labels when a store is opened. All zero: no conversion. */
typedef struct gp_store_options {
    uint32_t channels;      /* 1: grey, 3: RGB, 0: RGB if any inspected image is in colour */
    uint32_t height, width; /* 0: the size shared by the inspected images */
    /* the caller only inspects the data: if sizes differ, the first image decides */
    bool any_size;
    gp_on_error on_error;

    /* Required channels, height and width for image files; height 0: no requirement. The open
     * inspects some images and rejects a different size, or a colour image where one channel is
     * required. */
    uint32_t exact[3];

    /* Classes from a model or from the training data. Labels are renumbered to match them
     * (class_match.h). class_count 0: keep the numbers in the data. class_names NULL: the classes
     * have no names. */
    const char *const *class_names;
    uint32_t class_count;
    /* limit for cached decoded images; 0: GP_STORE_CACHE_BYTES; 1: no cache */
    uint64_t cache_bytes;
    /* progress receiver for listing and drawing during the open; NULL: no reports */
    const gp_progress *progress;
} gp_store_options;

/* Convert a cache size in MiB to a value for cache_bytes. 0 or less: no cache. */
static inline uint64_t gp_store_cache_bytes(int64_t mebibytes)
{
    return mebibytes <= 0 ? 1 : (uint64_t)mebibytes << 20;
}

typedef struct gp_store gp_store;

/* Store description. The strings live as long as the store. */
typedef struct gp_store_info {
    const char *source; /* source name as given to the open, for messages */
    const char *kind;   /* "idx", "digits", "synthetic", "memory", "folder", "pixels" */
    uint32_t count;     /* sample count, at least 1 */
    uint32_t channels, height, width;
    gp_dtype dtype;        /* stored type: GP_U8 or GP_F32 */
    size_t sample_bytes;   /* channels * height * width * gp_dtype_bytes(dtype) */
    uint32_t target_count; /* at least 1; an opener may pass 0 for one target, the sample's class */
    gp_target targets[GP_STORE_TARGETS_MAX]; /* an opener may leave `classes` 0 for class_count */
    size_t target_bytes;                     /* packed target size per sample, in this order */
    /* class count for the first index target; 0: no index target */
    uint32_t class_count;
    const char *const *class_names; /* class_count names */
    /* the data or the model has no class names: classes were matched by number */
    bool matched_by_number;
    bool sizes_differ;    /* the images have several sizes, and the options set any_size */
    bool remote;          /* reads wait for a network; call gp_store_expect() ahead of them */
    bool decodes;         /* reads decode images; use several threads */
    uint64_t passed_over; /* files that are not images, and images without a label image */
    /* Folders that cannot be listed, classes without images, and images without a label image,
     * counted under GP_ON_ERROR_SKIP. left_out_first describes the first. */
    uint64_t left_out;
    const char *left_out_first;
    /* network input = stored value * scale[channel] + offset[channel] */
    float scale[GP_STORE_CHANNELS_MAX];
    float offset[GP_STORE_CHANNELS_MAX];
    /* hash over shape, count, and up to 64 evenly spaced samples with their targets */
    uint64_t fingerprint;
    /* time spent on decoding all samples; 0: they were cached, or need no cache */
    int64_t decode_ns;
    bool decode_cached; /* later processes find the decoded samples in the cache */
} gp_store_info;

/* Open the samples that `source` names. Release the store with gp_store_close().
 *
 *   "synthetic:HxWxC:CLASSES:COUNT"  random bytes and labels, always the same; COUNT samples in
 *                                    both roles
 *   "digits[:COUNT]"                 drawn digits, 28x28 (digits.h); COUNT (default 60000) to
 *                                    train, COUNT / 6, rounded up, to test
 *   a directory with IDX files       train reads train-images-idx3-ubyte[.gz] and
 *                                    train-labels-idx1-ubyte[.gz], test reads t10k-*; an optional
 *                                    classes.txt names the classes, one per line
 *   a directory with class folders   JPEG and PNG images below source/CLASS, or below
 *                                    source/train/CLASS and source/test/CLASS (or val); classes
 *                                    in alphabetical order
 *   image and label directories      paired by name; each pixel has a class (pixels.c)
 *   "s3://BUCKET/PREFIX[?OPTIONS]"   the same layouts in S3 (s3_source.h)
 *   a name                           a directory in GRADPOOL_DATA or the cache, see
 *                                    gp_store_find()
 *
 * The words "synthetic" and "digits" take precedence over directories; write ./digits for the
 * directory.
 *
 *   GP_ENOENT: the source does not exist, or has no files for the role
 *   GP_ECORRUPT: damaged files
 *   GP_EINVAL: malformed source name
 *   GP_EUNSUPPORTED: this version cannot read this kind of source */
gp_status gp_store_open(gp_store **out, const char *source, gp_data_role role, gp_error *err);

/* Open a source and convert its images as the options say. Only images can be converted; other data
 * keeps its shape. GP_EINVAL also: the images have several sizes and the options give none. */
gp_status gp_store_open_with(gp_store **out, const char *source, gp_data_role role,
                             const gp_store_options *options, gp_error *err);

/* List the class folders or draw the digits that `source` names, and cache the result on disk, so
 * that other processes open the source quickly. Do nothing for other sources, and for results that
 * are not cached. Errors are ignored here; a later open reports them. */
void gp_store_prepare(const char *source, gp_data_role role, const gp_progress *progress);

/* Open a store over arrays with any kind of target.
 *   info     source, kind, count, shape, dtype, targets and classes are read; the rest is computed
 *   samples  `count` samples, packed; must outlive the store
 *   targets  info->target_bytes for each sample; must outlive the store
 * GP_ECORRUPT: an index is outside [-1, classes). */
gp_status gp_store_open_arrays(gp_store **out, const gp_store_info *info, const void *samples,
                               const void *targets, gp_error *err);

void gp_store_close(gp_store *store); /* store may be NULL */

/* Return the description, valid until the store is closed. */
const gp_store_info *gp_store_get_info(const gp_store *store);

/* Return whether each sample has exactly one target, a class. */
bool gp_store_has_class(const gp_store_info *info);

/* Copy the samples and targets at index[0..count), in that order. Safe from several threads at
 * once. Allocates no memory for stores held in memory.
 *   samples  count * sample_bytes, packed CHW in the store's dtype, not normalized;
 *            NULL: targets only
 *   targets  count * target_bytes; may be NULL
 * GP_EINVAL: an index is not below the store's count. */
gp_status gp_store_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                        void *targets, gp_error *err);

/* A sample at an individual size. All zero before the first read. */
typedef struct gp_whole {
    uint32_t height, width;           /* image size in the file */
    uint32_t read_height, read_width; /* size as read below */
    void *sample;                     /* [channels, read_height, read_width] in the store's dtype */
    int32_t *labels; /* [height, width], independent of the read size; NULL: no pixel labels */
    size_t sample_bytes, label_bytes; /* allocated bytes per buffer */
} gp_whole;

/* Requested size for gp_store_read_whole(). 0, 0: the image's own size. */
typedef struct gp_whole_size {
    uint32_t height, width;
    /* use the smallest size with the image's proportions that covers height and width */
    bool cover;
} gp_whole_size;

/* Read one sample and the pixel labels, bypassing the cache. The labels keep the image size.
 * Buffers in `whole` grow as needed; free them with gp_whole_deinit(). Safe from several threads at
 * once.
 *
 *   GP_EUNSUPPORTED: the samples are not image files and cannot be resized
 *   GP_ELIMIT: the result would exceed the size limit for images
 *
 * An unreadable image fails under GP_ON_ERROR_SKIP too; ask
 * gp_store_is_skipped() whether to skip it. */
gp_status gp_store_read_whole(const gp_store *store, uint32_t index, const gp_whole_size *size,
                              gp_whole *whole, gp_error *err);
/* Grow the buffers in `whole` to at least these sizes in bytes. GP_ENOMEM: out of memory. */
gp_status gp_whole_reserve(gp_whole *whole, size_t sample_bytes, size_t label_bytes, gp_error *err);
void gp_whole_deinit(gp_whole *whole);

/* Announce samples that will be read soon, so that a slow store can start to fetch them. Never
 * blocks, and guarantees nothing. Safe from any thread. */
void gp_store_expect(const gp_store *store, const uint32_t *index, uint32_t count);

/* Return options that convert images to a network's input shape [channels, height, width]. */
gp_store_options gp_store_options_for(const gp_shape *input);

/* Format the name for sample `index`, truncated to fit: CLASS/NAME.jpg for images, else the number,
 * starting at 1. Return `text`. */
char *gp_store_name(const gp_store *store, uint32_t index, char *text, size_t bytes);

/* Return whether a sample was ever found unreadable (GP_ON_ERROR_SKIP). */
bool gp_store_is_skipped(const gp_store *store, uint32_t index);

/* Return false if no sample has a target (a class for the sample or for a pixel, or a value). Reads
 * targets until one is found. An unreadable sample counts as having a target, because the next read
 * of that sample reports the error. */
bool gp_store_has_targets(const gp_store *store);

/* Count missing targets (classes or values) over all samples. Label images are not counted, because
 * that would decode each image: *missing is then 0. */
gp_status gp_store_count_missing(const gp_store *store, uint64_t *missing, gp_error *err);

/* Return how many samples were unreadable so far (GP_ON_ERROR_SKIP). */
uint64_t gp_store_skipped(const gp_store *store);

/* Number of unreadable samples whose indices are kept. */
enum { GP_SKIPPED_NAMED_MAX = 8 };

/* Get the first unreadable samples, at most GP_SKIPPED_NAMED_MAX. Return their
 * count; 0 for stores that never skip. */
uint32_t gp_store_skipped_first(const gp_store *store, uint32_t index[GP_SKIPPED_NAMED_MAX]);

/* Format a message about info->left_out, truncated to fit. "": nothing was excluded. Return
 * `text`. */
char *gp_store_left_out(const gp_store *store, char *text, size_t bytes);

/* Resolve a name or path to a directory. A path that exists or contains '/' is used as it is. For a
 * name, search the directories in GRADPOOL_DATA (separated by colons), then the cache. GP_ENOENT:
 * not found; the message lists the directories searched, the nearest known name and the command
 * that helps. */
gp_status gp_store_find(char *path, size_t path_bytes, const char *name, gp_error *err);

/* Rewrite a data source name for workers: make relative paths absolute, keep names. */
gp_status gp_source_absolute(char *out, size_t bytes, const char *source, gp_error *err);

#endif
