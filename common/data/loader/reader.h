/* reader.h -- from positions in an epoch to samples in a batch: which samples of the store they are, what is done to
 * each, and the form they get.  Private to the loader. */
#ifndef GP_READER_H
#define GP_READER_H

#include "common/data/loader/loader.h"

enum { GP_READER_SAMPLES = 64 }; /* in one read, at most */

/* Does not change after gp_reader_init(); any number of threads may read.  Must not be moved. */
typedef struct gp_reader {
    const gp_store *store; /* borrowed */
    gp_sampler sampler;
    gp_augment augment;
    bool augments;       /* samples are augmented */
    bool draws;          /* by the store; else here */
    gp_store_info shape; /* of the samples in a batch */
    gp_drawing drawing;
} gp_reader;

/* Memory of one thread. */
typedef struct gp_reader_scratch {
    uint32_t index[GP_READER_SAMPLES];
    uint8_t *stored, *stored_targets; /* samples as in the store; NULL: the store writes the batch */
    uint8_t *drawn; /* an augmented sample that still gets its form; NULL unless both are done here */
} gp_reader_scratch;

gp_status gp_reader_init(gp_reader *reader, const gp_store *store, const gp_sampler *sampler,
                         const gp_loader_options *options, gp_error *err);
gp_status gp_reader_scratch_init(gp_reader_scratch *scratch, const gp_reader *reader, gp_error *err);
void gp_reader_scratch_deinit(gp_reader_scratch *scratch);
/* Read samples [at, at + count) of a batch into their places in it. */
gp_status gp_reader_read(const gp_reader *reader, gp_reader_scratch *scratch, const gp_loader_batch *batch,
                         uint32_t at, uint32_t count, gp_error *err);
/* Announce samples to a store that fetches them from far away. */
void gp_reader_expect(const gp_reader *reader, uint32_t epoch, uint32_t first, uint32_t count);

#endif
