/* trainer_exchange.h -- the sums that the ranks of a training exchange in every step.
 *
 *   header     float64: losses and metrics of the plan, then stop, pause and number of samples; summed once per step
 *   gradients  float32, the layout of the parameters; summed bucket by bucket while the backward pass runs
 *
 * Both lie in the arena of the group. With `reproducible` the arena holds fixed-point integers instead (exact.h): the
 * plan writes header and gradients of one call into private memory, and each call is added to the integers. */
#ifndef GP_TRAINER_EXCHANGE_H
#define GP_TRAINER_EXCHANGE_H

#include "worker/train/trainer.h"

/* Elements of the header; the first GP_SUMS are written by the plan. */
enum { GP_HEADER_STOP = GP_SUMS, GP_HEADER_PAUSE, GP_HEADER_SAMPLES, GP_HEADER_COUNT };

typedef struct gp_exchange {
    gp_comm *comm;             /* borrowed; NULL: no group */
    gp_train_control *control; /* borrowed */
    gp_range *buckets; /* [bucket_count] in the order in which the backward pass completes them, owned */
    uint32_t bucket_count;
    uint32_t buckets_done; /* in this step */
    bool by_bucket;        /* buckets are summed during the backward pass */
    size_t blob_count;     /* float32 elements of the gradients */
    double *header;        /* [GP_HEADER_COUNT] */
    float *gradients;      /* [blob_count] */
    int64_t *words;        /* fixed-point sums; NULL unless `reproducible` */
    gp_coupling coupling;  /* of batch normalisation; sums: owned, NULL: not synchronised */
    int64_t spent_ns;      /* in the collectives of this step, including the wait for other ranks */
    uint64_t wait_ns;      /* of the group, when the step began */
} gp_exchange;

/* What follows the steps in flight; ordered by precedence. */
typedef enum gp_train_ending { GP_ENDING_NONE, GP_ENDING_PAUSE, GP_ENDING_STOP } gp_train_ending;

/* Sums over all ranks of one step or one validation. */
typedef struct gp_step_result {
    double weight;          /* of all samples; 0: no sample had a target */
    double loss;            /* mean */
    double accuracy, rmse;  /* NaN: no sample had a class, or a value */
    double samples;         /* of a step; of a validation: excluded targets */
    double bad;             /* fp16: gradients that are not finite */
    gp_train_ending ending; /* requested on some rank */
} gp_step_result;

gp_step_result gp_step_result_of(const double sums[GP_SUMS], double samples, bool stop, bool pause);

/* Divide the gradients that are exchanged into buckets; frozen tensors are left out.
 * on_device: the device sums the buckets, which makes larger ones faster. */
gp_status gp_exchange_init(gp_exchange *exchange, const gp_graph *graph, const gp_train_options *options,
                           gp_train_control *control, bool on_device, gp_error *err);
void gp_exchange_deinit(gp_exchange *exchange); /* before the group is freed */

/* Bytes that gp_exchange_place() takes from the arena. */
size_t gp_exchange_arena_bytes(const gp_exchange *exchange, bool reproducible);

/* Take the memory of header and gradients: from the arena of the group, or private where comm is NULL.
 * sharded: the ranks read each other's gradients when they commit (trainer_shard.c), so nothing is summed before. */
gp_status gp_exchange_place(gp_exchange *exchange, gp_comm *comm, bool reproducible, bool sharded,
                            gp_error *err);

/* In a group: prepare batch normalisation over the samples of all ranks, if the options ask for it.
 * GP_EINVAL: the options are about batch normalisation, and the network has none. */
gp_status gp_exchange_couple(gp_exchange *exchange, const gp_graph *graph, const gp_train_options *options,
                             gp_error *err);

/* For gp_batch; NULL: batch normalisation is not synchronised. */
const gp_coupling *gp_exchange_coupling(const gp_exchange *exchange);

/* Begin the sums of a step, or of a validation, which has no gradients. */
void gp_exchange_begin(gp_exchange *exchange, bool gradients);

/* The function that sums buckets during the backward pass, with the exchange as its context; NULL: they are summed later. */
gp_ready_fn gp_exchange_ready_fn(const gp_exchange *exchange);

/* With `reproducible`: add the header, and perhaps the gradients, of one call to the fixed-point sums. */
void gp_exchange_add_call(gp_exchange *exchange, bool gradients);

/* With `reproducible`: sum the fixed-point gradients over all ranks. */
gp_status gp_exchange_words(gp_exchange *exchange, gp_error *err);

/* Sum the header over all ranks, with the requests to stop or pause. samples: see gp_step_result. */
gp_status gp_exchange_header(gp_exchange *exchange, uint64_t samples, gp_error *err);

/* Wait for all ranks; counts as a part of the exchange. */
gp_status gp_exchange_barrier(gp_exchange *exchange, gp_error *err);

gp_step_result gp_exchange_result(const gp_exchange *exchange);

/* Set exchange_ms and wait_ms of the record: the time since gp_exchange_begin(). */
void gp_exchange_get_times(const gp_exchange *exchange, gp_train_record *record);

#endif
