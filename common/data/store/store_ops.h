/* The interface between a store and its implementations. */
#ifndef GP_STORE_OPS_H
#define GP_STORE_OPS_H

#include <stdatomic.h>

#include "common/data/store/augment.h"
#include "common/data/cache/decoded.h"
#include "common/data/store/store.h"

/* Functions of a store implementation. */
typedef struct gp_store_ops {
    /* Read samples and targets. All indices are valid. Called from several threads at once. */
    gp_status (*read)(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                      void *targets, gp_error *err);
    void (*close)(gp_store *store); /* frees the store; must call gp_store_deinit() first */
    /* Optional functions. NULL: all samples have one size and no names. */
    gp_status (*read_whole)(const gp_store *store, uint32_t index, const gp_whole_size *size, gp_whole *whole,
                            gp_error *err);
    void (*name)(const gp_store *store, uint32_t index, char *text, size_t bytes);
    void (*expect)(const gp_store *store, const uint32_t *index,
                   uint32_t count); /* NULL: announcing reads has no benefit */
    /* Set both or neither; see gp_store_draws() and gp_store_read_drawn(). */
    bool (*draws)(const gp_store *store, const gp_augment *augment);
    gp_status (*read_drawn)(const gp_store *store, const gp_drawing *drawing, uint32_t epoch,
                            const uint32_t *index, uint32_t count, void *samples, void *targets,
                            gp_error *err);
} gp_store_ops;

/* Base type: the first member in each implementation's struct. */
struct gp_store {
    const gp_store_ops *ops;
    gp_store_info info;
    char *source;
    const char **class_names; /* single block, names included */
    bool *class_empty;        /* [class_count]: true for classes without samples; NULL: unknown */
    int32_t *renumber;        /* [classes in the data]: new label numbers; NULL: labels are kept */
    atomic_uchar *bad;        /* bit mask of unreadable samples; NULL: samples are never skipped */
    _Atomic uint64_t skipped;
    _Atomic uint32_t skipped_first[GP_SKIPPED_NAMED_MAX]; /* sample index + 1; 0: not set yet */
};

/* Fill in ops, source, shape, targets and class names ("0", "1", ... if NULL), and check them
 * against the limits. GP_U8 is scaled by 1/255, GP_F32 is kept. After a failure, the caller must
 * still close the store. */
gp_status gp_store_init(gp_store *store, const gp_store_ops *ops, const gp_store_info *info, gp_error *err);

/* Complete an open whose steps so far gave `status`: compute the fingerprint by reading samples,
 * then set *out. Close the store and return the error if any step failed. */
gp_status gp_store_seal(gp_store **out, gp_store *store, gp_status status, gp_error *err);

/* Renumber the labels by the classes in the options. Call this after gp_store_seal(), so that the
 * fingerprint does not depend on the options. */
gp_status gp_store_renumber(gp_store *store, const gp_store_options *options, gp_error *err);

/* Check shape, count and targets against the limits, and fill in sizes and defaults. */
gp_status gp_store_info_check(gp_store_info *info, gp_error *err);

/* Free everything that gp_store_init() and gp_store_renumber() allocated. */
void gp_store_deinit(gp_store *store);

/* Open a store over decoded or mapped samples.
 *   decoded  packed samples; ownership passes to this function, even on failure
 *   targets  packed targets, in the memory of `decoded` or in `owned`
 *   owned    heap block, owned in the same way; may be NULL */
gp_status gp_store_open_decoded(gp_store **out, const gp_store_info *info, gp_decoded *decoded,
                                const void *targets, void *owned, gp_error *err);

/* Access to .npy files outside the local file system, for example in S3. */
struct gp_npy;
typedef bool (*gp_npy_exists)(void *context, const char *path);
typedef struct gp_npy_files {
    gp_npy_exists exists;
    gp_status (*open)(void *context, struct gp_npy *out, const char *path, gp_error *err);
    void *context;
} gp_npy_files;

/* Open arrays in a directory, or one array file, through `files`; see gp_store_open_npy(). */
gp_status gp_store_open_npy_files(gp_store **out, const char *path, gp_data_role role,
                                  const gp_npy_files *files, gp_error *err);

/* Return whether a directory contains sample arrays, using only exists(). */
bool gp_npy_is_listed(const char *directory, gp_npy_exists exists, void *context);

#endif
