/* trainer_data.h -- a rank's training and validation data: stores, sample order, and prefetching
 * loaders. */
#ifndef GP_TRAINER_DATA_H
#define GP_TRAINER_DATA_H

#include "common/data/loader/loader.h"
#include "worker/train/schedule.h"
#include "worker/train/trainer.h"

/* Minimum number of prefetched batches, and the limit in bytes for additional ones. */
enum { GP_TRAIN_PREFETCH = 3, GP_TRAIN_PREFETCH_BYTES_MAX = 256 << 20 };

/* Training or validation data. */
typedef struct gp_train_source {
    gp_store *store;           /* owned; NULL: no validation data */
    uint64_t skipped_reported; /* skipped images already reported to the client */
    gp_sampler sampler;        /* sample order in an epoch */
    gp_loader *loader;         /* owned */
} gp_train_source;

/* All training data on this rank. */
typedef struct gp_train_data {
    gp_train_source training, validation;

    /* training sample augmentation; validation samples are only cropped and scaled
     * (gp_augment_fixed) */
    gp_augment augment;
    gp_store_info shape; /* training data as seen by the network, after augmentation */
    char *classes;       /* JSON array of class names, owned */
} gp_train_data;

/* Open the stores that are not open yet, and check that the network accepts their samples and
 * targets. */
gp_status gp_train_data_open(gp_train_data *data, const gp_trainer_setup *setup,
                             const gp_train_options *options, const gp_graph *graph, gp_error *err);
void gp_train_data_close(gp_train_data *data);

/* Start the loaders. micro_batch: maximum samples per batch. */
gp_status gp_train_data_start(gp_train_data *data, const gp_train_options *options, uint32_t micro_batch,
                              gp_error *err);

/* Request the schedule's next call from the training loader. No effect after the last call. */
gp_status gp_train_data_request(gp_train_data *data, const gp_schedule *schedule, gp_train_cursor *at,
                                gp_error *err);

/* Request as many calls as the loader can hold. */
gp_status gp_train_data_prefetch(gp_train_data *data, const gp_schedule *schedule, gp_train_cursor *at,
                                 gp_error *err);

/* Move the open stores to `stores` (training, validation) after stopping the loaders, or back.
 * Occupied entries are not replaced.
 *   skipped  per store, the skipped images already reported to the client */
void gp_train_data_hand_over(gp_train_data *data, gp_store *stores[2], uint64_t skipped[2]);
void gp_train_data_take_over(gp_train_data *data, gp_store *stores[2], const uint64_t skipped[2]);

/* Check that all ranks have the same data; collective. GP_EINVAL: this rank differs from the
 * majority. GP_EPEER: another rank differs. */
gp_status gp_train_data_compare(const gp_train_data *data, gp_comm *comm, gp_error *err);

/* Send notes about the data before the first step: excluded samples (rank 0 only, as all ranks
 * exclude the same ones), and the decoding time, unless the training is restarted. */
void gp_train_data_report(const gp_train_data *data, bool rank_0, bool restarted, const gp_train_sink *sink);

/* Add the skipped images to *done: the count, and names as long as there is space. */
void gp_train_data_add_skipped(gp_train_data *data, gp_train_done *done);

#endif
