/* trainer_data.h -- the data that a rank reads: stores, their order, and the loaders that prefetch batches. */
#ifndef GP_TRAINER_DATA_H
#define GP_TRAINER_DATA_H

#include "common/data/loader/loader.h"
#include "worker/train/schedule.h"
#include "worker/train/trainer.h"

/* Batches prefetched at first and at least, and the ceiling in bytes for more of them. */
enum { GP_TRAIN_PREFETCH = 3, GP_TRAIN_PREFETCH_BYTES_MAX = 256 << 20 };

typedef struct gp_train_source {
    gp_store *store;           /* owned; NULL: no validation data */
    uint64_t skipped_reported; /* skipped images that the client knows of */
    gp_sampler sampler;        /* order of the samples in an epoch */
    gp_loader *loader;         /* owned */
} gp_train_source;

typedef struct gp_train_data {
    gp_train_source training, validation;
    gp_augment
        augment; /* of training samples; validation samples are only cropped and scaled (gp_augment_fixed) */
    gp_store_info shape; /* the training data as the network sees it, after augmentation */
    char *classes;       /* JSON array of class names, owned */
} gp_train_data;

/* Open the stores that are not open yet, and check that the network takes their samples and targets. */
gp_status gp_train_data_open(gp_train_data *data, const gp_trainer_setup *setup,
                             const gp_train_options *options, const gp_graph *graph, gp_error *err);
void gp_train_data_close(gp_train_data *data);

/* Start the loaders. micro_batch: samples per batch, at most. */
gp_status gp_train_data_start(gp_train_data *data, const gp_train_options *options, uint32_t micro_batch,
                              gp_error *err);

/* Request the next call of the schedule from the loader of the training data; after the last call, do nothing. */
gp_status gp_train_data_request(gp_train_data *data, const gp_schedule *schedule, gp_train_cursor *at,
                                gp_error *err);

/* Request as many calls as the loader can hold at most. */
gp_status gp_train_data_prefetch(gp_train_data *data, const gp_schedule *schedule, gp_train_cursor *at,
                                 gp_error *err);

/* Stop the loaders and move the open stores into the empty places of `stores` (training, validation), and back.
 * skipped: of each store, the skipped images that the client knows of. */
void gp_train_data_hand_over(gp_train_data *data, gp_store *stores[2], uint64_t skipped[2]);
void gp_train_data_take_over(gp_train_data *data, gp_store *stores[2], const uint64_t skipped[2]);

/* Check that all ranks see the same data; collective. GP_EINVAL on a rank that differs from most, GP_EPEER on the others. */
gp_status gp_train_data_compare(const gp_train_data *data, gp_comm *comm, gp_error *err);

/* Send notes about the data before the first step: samples excluded when a store was opened (rank 0 only, as all ranks
 * exclude the same), and, unless the training is restarted, how long the decoding took. */
void gp_train_data_report(const gp_train_data *data, bool rank_0, bool restarted, const gp_train_sink *sink);

/* Add the skipped images to *done: their number, and the first of their names while there is room. */
void gp_train_data_add_skipped(gp_train_data *data, gp_train_done *done);

#endif
