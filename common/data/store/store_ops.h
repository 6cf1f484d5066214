/* store_ops.h -- the inside of a store, for the files that implement one. */
#ifndef GP_STORE_OPS_H
#define GP_STORE_OPS_H

#include "common/data/store/augment.h"
#include "common/data/cache/decoded.h"
#include "common/data/store/store.h"

typedef struct gp_store_ops {
    /* Indices are below count here.  Concurrent calls are normal. */
    gp_status (*read)(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                      void *targets, gp_error *err);
    void (*close)(gp_store *store); /* frees the store too; gp_store_deinit() first */
    /* Each of the others may be NULL: samples have one size, no names, and nothing is ever skipped. */
    gp_status (*read_whole)(const gp_store *store, uint32_t index, const gp_whole_size *size, gp_whole *whole,
                            gp_error *err);
    void (*name)(const gp_store *store, uint32_t index, char *text, size_t bytes);
    bool (*is_skipped)(const gp_store *store, uint32_t index);
    uint64_t (*skipped)(const gp_store *store);
    uint32_t (*skipped_first)(const gp_store *store, uint32_t index[GP_SKIPPED_TOLD]);
    void (*expect)(const gp_store *store, const uint32_t *index,
                   uint32_t count); /* NULL: nothing is gained by it */
    /* Both or none: gp_store_draws(), gp_store_read_drawn(). */
    bool (*draws)(const gp_store *store, const gp_augment *augment);
    gp_status (*read_drawn)(const gp_store *store, const gp_drawing *drawing, uint32_t epoch,
                            const uint32_t *index, uint32_t count, void *samples, void *targets,
                            gp_error *err);
} gp_store_ops;

/* The first member of each implementation's struct. */
struct gp_store {
    const gp_store_ops *ops;
    gp_store_info info;
    char *source;
    const char **class_names; /* one block, names included */
    bool *class_empty;        /* [class_count]: classes of which there are no samples; NULL: not known */
    int32_t *renumber;        /* [class_count of the data]: what its labels become; NULL: what they are */
};

/* Fill in ops, source, shape, targets, the pixels/255 rule (GP_F32: as stored) and class names ("0".. when NULL), all
 * checked against the ceilings.  On failure the store still has to be closed by its ops. */
gp_status gp_store_init(gp_store *store, const gp_store_ops *ops, const gp_store_info *info, gp_error *err);

/* Compute the fingerprint, by reading: the last step of an open. */
gp_status gp_store_seal(gp_store *store, gp_error *err);

/* Number the labels by other classes: gp_store_options.  The last step of an open, behind the seal. */
gp_status gp_store_renumber(gp_store *store, const gp_store_options *options, gp_error *err);

void gp_store_deinit(gp_store *store);

/* gp_store_open_decoded -- a store of one byte per value, over decoded samples.
 *   decoded  taken over, also on failure: the samples, packed
 *   labels   a heap block, taken over; NULL: int32 labels follow the samples in decoded */
gp_status gp_store_open_decoded(gp_store **out, const gp_store_info *info, gp_decoded *decoded,
                                int32_t *labels, gp_error *err);

/* Where arrays are, if not in files. */
struct gp_npy;
typedef bool (*gp_npy_exists)(void *context, const char *path);
typedef struct gp_npy_files {
    gp_npy_exists exists;
    gp_status (*open)(void *context, struct gp_npy *out, const char *path, gp_error *err);
    void *context;
} gp_npy_files;

gp_status gp_store_open_npy_files(gp_store **out, const char *path, gp_data_role role,
                                  const gp_npy_files *files, gp_error *err);

/* Whether a directory's names, known by exists() alone, have arrays of samples among them. */
bool gp_npy_is_listed(const char *directory, gp_npy_exists exists, void *context);

#endif
