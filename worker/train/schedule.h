/* schedule.h -- order of work in a training: epochs, steps, and the calls of this rank.
 *
 *   epoch   mini-batches of `batch` samples; the last one may be smaller
 *   step    one mini-batch, divided among the ranks into contiguous shares
 *   call    a part of this rank's share: at most `micro_batch` samples
 *
 * A schedule is constant after gp_schedule_init(), so a position consists of two numbers: epoch
 * and first sample. */
#ifndef GP_SCHEDULE_H
#define GP_SCHEDULE_H

#include "common/base/error.h"
#include "common/data/store/store.h"
#include "common/model/graph/graph.h"
#include "common/model/train_options.h"

/* Samples per call with `reproducible`. One thread computes a call, and the result is rounded
 * once (fixed_point.h). */
enum { GP_REPRODUCIBLE_BLOCK = 16 };

/* Constant properties of a training that determine the steps and calls. */
typedef struct gp_schedule {
    const gp_train_options *options; /* borrowed */
    uint32_t rank, world;
    bool validates;       /* there is validation data */
    uint32_t samples;     /* samples per epoch */
    uint32_t batch;       /* samples per step, over all ranks */
    uint32_t micro_batch; /* maximum samples per call */
    double *loads;        /* [world] relative rank loads, owned; NULL: equal */
} gp_schedule;

/* One call: a position range in an epoch's sample order. */
typedef struct gp_train_call {
    uint32_t epoch, first, count; /* epoch from 0; positions [first, first + count) */
    uint64_t position;            /* index of the first sample in the mini-batch */
    uint32_t batch;               /* samples in the step, over all ranks */
    bool first_call, last_call;   /* this rank's first or last call in the step */
    bool last_step;               /* last step of the epoch */
} gp_train_call;

/* Iterator over the calls of a training. There are two: one for the calls requested from the
 * loader, and one for the calls computed. */
typedef struct gp_train_cursor {
    uint32_t epoch; /* from 0 */
    uint32_t first; /* mini-batch position in the epoch */
    uint32_t done;  /* samples of this rank's share that earlier calls covered */
} gp_train_cursor;

/* Derive the schedule from the options and the training data; rank and world must be set.
 * GP_EINVAL, GP_ELIMIT: the options do not fit the data, the network or the rank count. */
gp_status gp_schedule_init(gp_schedule *schedule, const gp_train_options *options, const gp_graph *graph,
                           const gp_store_info *data, bool validates, gp_error *err);
void gp_schedule_deinit(gp_schedule *schedule);

/* Get this rank's share of `total` samples: [*first, *first + *count). With `reproducible`, the
 * share consists of whole blocks. It may be empty. */
void gp_schedule_share(const gp_schedule *schedule, uint32_t total, uint32_t *first, uint32_t *count);

/* Return the sample count in the mini-batch at position `first` of an epoch. */
uint32_t gp_schedule_batch(const gp_schedule *schedule, uint32_t first);

/* Get the next call and advance the cursor. false: the training has no more calls. */
bool gp_schedule_next(const gp_schedule *schedule, gp_train_cursor *at, gp_train_call *out);

uint32_t gp_schedule_steps_per_epoch(const gp_schedule *schedule);

/* Return whether a validation, or a checkpoint, follows the step that contains `call`. The
 * result is the same on all ranks.
 *   step  step number, from 1 */
bool gp_schedule_validates(const gp_schedule *schedule, const gp_train_call *call, uint64_t step);
bool gp_schedule_saves(const gp_schedule *schedule, const gp_train_call *call, uint64_t step);

/* Return a step's learning rate. step, epoch: from 1. */
double gp_schedule_learn_rate(const gp_schedule *schedule, uint64_t step, uint32_t epoch);

#endif
