/* trainer_exchange.h -- sums over all ranks in every step.
 *
 *   header     float64: losses and metrics from the plan, then stop, pause and number of
 *              samples; summed once per step
 *   gradients  float32, in the parameter layout; summed bucket by bucket during the backward
 *              pass
 *
 * Both are in the group's arena. With `reproducible` the arena contains fixed-point integers
 * instead (fixed_point.h): the plan writes one call's header and gradients to private memory, and
 * each call is added to the integers. */
#ifndef GP_TRAINER_EXCHANGE_H
#define GP_TRAINER_EXCHANGE_H

#include "worker/train/trainer.h"

/* Header elements. The plan writes the first GP_SUMS. */
enum { GP_HEADER_STOP = GP_SUMS, GP_HEADER_PAUSE, GP_HEADER_SAMPLES, GP_HEADER_COUNT };

/* State of the sums over all ranks. */
typedef struct gp_exchange {
    gp_comm *comm;             /* borrowed; NULL: no group */
    gp_train_control *control; /* borrowed */
    gp_range *buckets; /* [bucket_count] in the order in which the backward pass completes them, owned */
    uint32_t bucket_count;
    uint32_t buckets_done; /* buckets summed in this step */
    bool by_bucket;        /* sum buckets during the backward pass */
    size_t blob_count;     /* float32 elements in the gradients */
    double *header;        /* [GP_HEADER_COUNT] */
    float *gradients;      /* [blob_count] */
    int64_t *words;        /* fixed-point sums; NULL unless `reproducible` */
    gp_coupling coupling;  /* for batch normalization; sums: owned, NULL: not synchronized */
    int64_t spent_ns;      /* time in the collectives of this step, including the wait for other ranks */
    uint64_t wait_ns;      /* group's wait time when the step starts */
} gp_exchange;

/* Action after the steps in flight; ordered by precedence. */
typedef enum gp_train_ending { GP_ENDING_NONE, GP_ENDING_PAUSE, GP_ENDING_STOP } gp_train_ending;

/* Sums over all ranks of one step or one validation. */
typedef struct gp_step_result {
    double weight;          /* weight of all samples; 0: no sample had a target */
    double loss;            /* mean loss */
    double accuracy, rmse;  /* NaN: no sample had a class, or a value */
    double samples;         /* step: sample count; validation: excluded targets */
    double bad;             /* fp16: number of gradients that are not finite */
    gp_train_ending ending; /* requested by any rank */
} gp_step_result;

/* Compute loss, metrics and ending from the sums over all ranks. */
gp_step_result gp_step_result_of(const double sums[GP_SUMS], double samples, bool stop, bool pause);

/* Divide the exchanged gradients into buckets. Frozen tensors are excluded.
 *   on_device  the device sums the buckets, for which larger ones are faster */
gp_status gp_exchange_init(gp_exchange *exchange, const gp_graph *graph, const gp_train_options *options,
                           gp_train_control *control, bool on_device, gp_error *err);
void gp_exchange_deinit(gp_exchange *exchange); /* call it before the group is freed */

/* Return the arena bytes that gp_exchange_place() needs. */
size_t gp_exchange_arena_bytes(const gp_exchange *exchange, bool reproducible);

/* Allocate header and gradients: in the group's arena, or privately if comm is NULL.
 *   sharded  the ranks read each other's gradients in the commit (trainer_shard.c), so these are
 *            not summed before */
gp_status gp_exchange_place(gp_exchange *exchange, gp_comm *comm, bool reproducible, bool sharded,
                            gp_error *err);

/* Prepare batch normalization over all ranks' samples, if the options request it. GP_EINVAL: the
 * options concern batch normalization, but the network has none. */
gp_status gp_exchange_couple(gp_exchange *exchange, const gp_graph *graph, const gp_train_options *options,
                             gp_error *err);

/* Return the coupling for gp_batch. NULL: batch normalization is not synchronized. */
const gp_coupling *gp_exchange_coupling(const gp_exchange *exchange);

/* Start the sums of a step, or of a validation (gradients false). */
void gp_exchange_begin(gp_exchange *exchange, bool gradients);

/* With by_bucket, during the backward pass: sum the complete buckets within the first `final_count`
 * elements. A gp_ready_fn; the context is the exchange. */
gp_status gp_exchange_sum(void *context, size_t final_count, gp_error *err);

/* With `reproducible`: add one call's header, and optionally the gradients, to the fixed-point
 * sums. */
void gp_exchange_add_call(gp_exchange *exchange, bool gradients);

/* With `reproducible`: sum the fixed-point gradients over all ranks. */
gp_status gp_exchange_text(gp_exchange *exchange, gp_error *err);

/* Sum the header over all ranks, including stop and pause requests. samples: see gp_step_result. */
gp_status gp_exchange_header(gp_exchange *exchange, uint64_t samples, gp_error *err);

/* Wait for all ranks. The wait counts as exchange time. */
gp_status gp_exchange_barrier(gp_exchange *exchange, gp_error *err);

/* Return the step or validation result after gp_exchange_header(). */
gp_step_result gp_exchange_result(const gp_exchange *exchange);

/* Set exchange_ms and wait_ms of the record, counted from gp_exchange_begin(). */
void gp_exchange_get_times(const gp_exchange *exchange, gp_train_record *record);

#endif
