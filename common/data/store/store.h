/* store.h -- where samples come from: a counted set of samples of one shape with their targets, read at random.
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
    GP_STORE_SIDE_MAX = 8192, /* height and width */
    GP_STORE_CLASSES_MAX = 65536,
    GP_STORE_SAMPLES_MAX = 1 << 30,
    GP_STORE_TARGETS_MAX = 8,
    GP_STORE_TARGET_MAX = 1 << 28, /* elements of one sample's target */
};

/* Arrays larger than this are refused: they are held in memory. */
#define GP_STORE_BYTES_MAX ((uint64_t)64 << 30)

#define GP_STORE_CACHE_BYTES ((uint64_t)512 << 20)

typedef enum gp_data_role {
    GP_DATA_TRAIN,
    GP_DATA_TEST, /* what a training is validated on: of folders val, else test */
    GP_DATA_GIVEN, /* what the user named to predict or validate: its test part (else val), or all where it has no parts */
} gp_data_role;

typedef enum gp_on_bad {
    GP_BAD_ERROR, /* an image that cannot be read is an error */
    GP_BAD_SKIP,  /* it is logged by name, counted, and its class is -1: no loss counts it */
} gp_on_bad;

/* What images are brought to, and labels are numbered by.  All zero: as they are. */
typedef struct gp_store_options {
    uint32_t channels;      /* 1: grey, 3: RGB, 0: RGB if any of those looked at is */
    uint32_t height, width; /* 0: the size that those looked at have in common */
    bool any_size;          /* of several sizes the first is as good as any: the caller only looks */
    gp_on_bad on_bad;

    /* Channels, height and width that images in files must have; height 0: any. An image of another size is refused, and
     * a colour image where one channel is expected. Some of the images are looked at. */
    uint32_t exact[3];

    /* Classes of a model, or of the training data, that the labels are numbered by (class_match.h). class_count 0: the
     * data's own numbers. class_names NULL: the classes have no names. */
    const char *const *class_names;
    uint32_t class_count;
    uint64_t cache_bytes;        /* for decoded images; 0: GP_STORE_CACHE_BYTES.  1 keeps none */
    const gp_progress *progress; /* of listing and drawing while the store is opened; NULL: no reports */
} gp_store_options;

/* cache_bytes of so many MiB. */
static inline uint64_t gp_store_cache_bytes(int64_t mebibytes)
{
    return mebibytes <= 0 ? 1 : (uint64_t)mebibytes << 20;
}

typedef struct gp_store gp_store; /* opaque */

/* What a store holds.  Lives as long as the store. */
typedef struct gp_store_info {
    const char *source; /* what it was opened from, for people */
    const char *kind;   /* "idx", "digits", "synthetic", "memory", "folder", "pixels" */
    uint32_t count;     /* samples, at least 1 */
    uint32_t channels, height, width;
    gp_dtype dtype;                          /* of the stored values: GP_U8 or GP_F32 */
    size_t sample_bytes;                     /* channels * height * width * gp_dtype_bytes(dtype) */
    uint32_t target_count;                   /* at least 1.  To an opener, 0 means one: the sample's class */
    gp_target targets[GP_STORE_TARGETS_MAX]; /* to an opener, classes 0 means class_count */
    size_t target_bytes;                     /* of one sample's targets, packed in this order */
    uint32_t class_count;                    /* of the first target of indices; 0: there is none */
    const char *const *class_names;          /* class_count of them */
    bool matched_by_number; /* named classes were matched with classes without names, in their order */
    bool sizes_differ;      /* images of several sizes, and the options said any_size */
    bool remote;            /* reading waits for a network: gp_store_expect() is worth it */
    bool decodes;           /* reading costs computing: several threads are worth it */
    uint64_t passed_over;   /* files that are no images, images without a label image */
    /* With GP_BAD_SKIP: folders that cannot be listed, classes without images, images without a label image; a sentence of
     * the first. */
    uint64_t left_out;
    const char *left_out_first;
    float scale[GP_STORE_CHANNELS_MAX]; /* network input = stored value * scale[channel] + offset[channel] */
    float offset[GP_STORE_CHANNELS_MAX];
    uint64_t fingerprint; /* of shape, count and up to 64 samples with targets, evenly spread */
    int64_t decode_ns;    /* time that decoding all samples took; 0: they were cached, or need no cache */
    bool decode_cached;   /* the samples decoded in that time are cached for later processes */
} gp_store_info;

/* gp_store_open -- open the samples that SOURCE names.
 *   source  "synthetic:HxWxC:CLASSES:COUNT"  random bytes and labels, the same each time; both roles have COUNT
 *           "digits[:COUNT]"                 drawn digits, 28x28 (digits.h); COUNT (default 60000) to train,
 *                                            a sixth of it, rounded up, to test
 *           a directory with IDX files       train reads train-images-idx3-ubyte[.gz] and
 *                                            train-labels-idx1-ubyte[.gz], test reads t10k-*; a classes.txt
 *                                            in it (one name a line) names the classes
 *           a directory of class folders     JPEG and PNG images below SOURCE/CLASS, or below SOURCE/train/CLASS
 *                                            and SOURCE/test/CLASS (or val); classes in the order of their names
 *           a directory of images and one of label images, paired by name: a class for each pixel (pixels.c)
 *           "s3://BUCKET/PREFIX[?OPTIONS]"   the same as a directory or a file of that name, in S3 (s3_source.h)
 *           a name                           a sub-directory of GRADPOOL_DATA or of the cache: gp_store_find()
 * The two words win over directories of that name; write ./digits for the directory.
 * GP_ENOENT: nothing of that name, or no files of that role.  GP_ECORRUPT: damaged files.
 * GP_EINVAL: malformed SOURCE.  GP_EUNSUPPORTED: a kind of source this version does not read.
 * Release with gp_store_close(). */
gp_status gp_store_open(gp_store **out, const char *source, gp_data_role role, gp_error *err);

/* gp_store_open_with -- the same with a say in what images are brought to; other kinds of data have their one shape.
 * GP_EINVAL also: images of several sizes, and the options name none. */
gp_status gp_store_open_with(gp_store **out, const char *source, gp_data_role role,
                             const gp_store_options *options, gp_error *err);

/* gp_store_prepare -- list the class folders or draw the digits that `source` names, and cache the result on disk, so that
 * other processes open the source quickly. Do nothing for other sources, and for results that are not cached. Errors are left
 * to those who open the source. */
void gp_store_prepare(const char *source, gp_data_role role, const gp_progress *progress);

/* gp_store_open_memory -- a store over the caller's arrays, for tests and for arrays that are there already.
 *   samples  count samples, packed CHW of dtype; labels count of them; both must outlive the store
 * Classes are named "0", "1", ...; scale 1, offset 0 for GP_F32, pixels/255 for GP_U8. */
gp_status gp_store_open_memory(gp_store **out, gp_dtype dtype, uint32_t count, uint32_t channels,
                               uint32_t height, uint32_t width, uint32_t class_count, const void *samples,
                               const int32_t *labels, gp_error *err);

/* gp_store_open_arrays -- the same for targets of any kind.
 *   info     source, kind, count, shape, dtype, targets and classes are read; the rest is filled in
 *   samples  count samples, packed; targets: info->target_bytes for each
 *   owned    freed with gp_free() by the close, and when this fails; else both must outlive the store
 * GP_ECORRUPT: an index outside [-1, classes). */
gp_status gp_store_open_arrays(gp_store **out, const gp_store_info *info, void *samples, void *targets,
                               bool owned, gp_error *err);

void gp_store_close(gp_store *store); /* accepts NULL */

const gp_store_info *gp_store_get_info(const gp_store *store);

/* Whether the one target is a class per sample. */
bool gp_store_has_class(const gp_store_info *info);

/* gp_store_read -- copy the samples and targets of index[0..count) out, in that order.
 *   samples  count * sample_bytes, packed CHW, in the store's dtype; not normalised; NULL: targets only
 *   targets  count * target_bytes; may be NULL
 * Safe from several threads at once; allocates nothing for stores held in memory.
 * GP_EINVAL: an index is not below the store's count. */
gp_status gp_store_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                        void *targets, gp_error *err);

/* A sample that keeps its own size, or is brought to another than the store's.  All zero before the first read. */
typedef struct gp_whole {
    uint32_t height, width;           /* of the image in its file */
    uint32_t read_height, read_width; /* of the sample here */
    void *sample;                     /* [channels, read_height, read_width] of the store's dtype */
    int32_t *labels; /* [height, width], whatever size was read; NULL: pixels have no labels */
    size_t sample_bytes, label_bytes; /* taken */
} gp_whole;

/* What it is brought to.  0, 0: its own size. */
typedef struct gp_whole_size {
    uint32_t height, width;
    bool cover; /* the smallest size that has the image's proportions and is at least that */
} gp_whole_size;

/* gp_store_read_whole -- one sample and its pixels' labels, which keep their size.  Buffers grow as they must;
 * gp_whole_deinit() frees them.
 * Nothing of it is kept in the store's memory.  Safe from several threads at once.
 * GP_EUNSUPPORTED: another size of samples that are no images of files.  GP_ELIMIT: it would be larger than an image may.
 * With GP_BAD_SKIP the failure is the same, and gp_store_is_skipped() says whether it is to be passed over. */
gp_status gp_store_read_whole(const gp_store *store, uint32_t index, const gp_whole_size *size,
                              gp_whole *whole, gp_error *err);
gp_status gp_whole_reserve(gp_whole *whole, size_t sample_bytes, size_t label_bytes, gp_error *err);
void gp_whole_deinit(gp_whole *whole);
/* gp_store_expect -- these samples will be read soon: what takes long to come is sent for now.  Never blocks, and promises
 * nothing.  Any thread. */
void gp_store_expect(const gp_store *store, const uint32_t *index, uint32_t count);

/* gp_store_options_for -- images as a network takes them whose input is [channels, height, width]. */
gp_store_options gp_store_options_for(const gp_shape *input);

/* gp_store_name -- what sample `index` is called: CLASS/NAME.jpg for images, its number from 1 for others.
 * Returns text, cut to fit. */
char *gp_store_name(const gp_store *store, uint32_t index, char *text, size_t bytes);

/* gp_store_is_skipped -- whether a sample could not be read (GP_BAD_SKIP) when it was last tried, or ever before. */
bool gp_store_is_skipped(const gp_store *store, uint32_t index);

/* Return false if no sample has a target: a class of the sample or of one of its pixels, or a value. Reads targets until one
 * is found. An unreadable sample counts as having a target, because the next read of it reports why. */
bool gp_store_has_targets(const gp_store *store);

/* Count the missing targets of all samples: classes or values. Pixels of label images are not counted, because each image
 * would be decoded: *missing is then 0. */
gp_status gp_store_count_missing(const gp_store *store, uint64_t *missing, gp_error *err);

/* gp_store_skipped -- how many samples could not be read so far (GP_BAD_SKIP). */
uint64_t gp_store_skipped(const gp_store *store);

/* gp_store_skipped_first -- the first of them, at most GP_SKIPPED_TOLD.  Returns how many; 0 for other kinds of stores. */
enum { GP_SKIPPED_TOLD = 8 };
uint32_t gp_store_skipped_first(const gp_store *store, uint32_t index[GP_SKIPPED_TOLD]);

/* gp_store_left_out -- a sentence about info->left_out; "": nothing was.  Returns text, cut to fit. */
char *gp_store_left_out(const gp_store *store, char *text, size_t bytes);

/* gp_store_find -- the directory that a name or path means: itself if it is a path (has a '/' or is there),
 * else the first sub-directory of that name in GRADPOOL_DATA (separated by colons), then in the cache.
 * GP_ENOENT: the message lists the places looked at, the nearest known name and the command that helps. */
gp_status gp_store_find(char *path, size_t path_bytes, const char *name, gp_error *err);

/* A data SOURCE as workers can use it: relative paths become absolute, names stay. */
gp_status gp_source_absolute(char *out, size_t bytes, const char *source, gp_error *err);

#endif
