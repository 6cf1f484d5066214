/* Convert epoch positions to batch samples: look up the sample index, read it, augment it, and
 * convert the pixel format. Private to the loader. */
#ifndef GP_READER_H
#define GP_READER_H

#include "common/data/loader/loader.h"

enum { GP_READER_SAMPLES = 64 }; /* largest number of samples per read */

/* Reader settings, constant after gp_reader_init(), so any number of threads may read. `drawing`
 * points into the struct: do not move it. */
typedef struct gp_reader {
    const gp_store *store; /* borrowed */
    gp_sampler sampler;
    gp_augment augment;
    bool augments;       /* samples are augmented */
    bool draws;          /* the store applies the augmentation itself */
    gp_store_info shape; /* description of the samples in a batch */
    gp_drawing drawing;
} gp_reader;

/* Buffers for one thread. */
typedef struct gp_reader_scratch {
    uint32_t index[GP_READER_SAMPLES];
    /* samples and targets as stored; NULL: the store writes directly to the batch */
    uint8_t *stored, *stored_targets;
    uint8_t *drawn; /* augmented sample before format conversion; NULL: not needed */
} gp_reader_scratch;

/* Initialize a reader and check the options. GP_EINVAL: the augmentation or pixel format does not
 * suit the store. */
gp_status gp_reader_init(gp_reader *reader, const gp_store *store, const gp_sampler *sampler,
                         const gp_loader_options *options, gp_error *err);
/* Allocate the buffers that one thread needs; none if the store writes directly to the batch. */
gp_status gp_reader_scratch_init(gp_reader_scratch *scratch, const gp_reader *reader, gp_error *err);
void gp_reader_scratch_deinit(gp_reader_scratch *scratch);
/* Read samples [at, at + count) of a batch into their positions in the batch. */
gp_status gp_reader_read(const gp_reader *reader, gp_reader_scratch *scratch, const gp_loader_batch *batch,
                         uint32_t at, uint32_t count, gp_error *err);
/* Announce samples to a store that reads over a network. */
void gp_reader_expect(const gp_reader *reader, uint32_t epoch, uint32_t first, uint32_t count);

#endif
