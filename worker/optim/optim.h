/* Optimizers: they update the parameters when a step ends (the commit).
 *
 * A rule processes dense blobs in the graph.h layout. It reads the summed gradient, divides it by
 * the step's total weight, and updates parameters and state in place. It needs no peer and
 * allocates nothing. A rank's state therefore belongs to step s or to step s + 1, never to a
 * mixture. */
#ifndef GP_OPTIM_H
#define GP_OPTIM_H

#include "common/base/error.h"
#include "common/model/graph/graph.h"
#include "common/model/train_options.h"

/* Opaque; see optim.c. */
typedef struct gp_optim gp_optim;

/* One update of `count` elements in one parameter tensor, in place or into other blobs. */
typedef struct gp_update {
    /* current values; `state` holds all blobs of the rule, state_stride elements apart */
    const float *parameters, *state;
    /* destination; may be the same memory */
    float *next_parameters, *next_state;
    /* elements between state blobs */
    size_t state_stride, next_stride;
    const float *gradients;
    /* elements */
    size_t count;
    float gradient_scale; /* 1 / total weight of the step */
    float learn_rate, l2; /* include the layer factors */
    float momentum;
    /* decay rates for the mean gradient and the mean squared gradient */
    float decay, squared_decay, epsilon;
    /* Bias corrections 1 / (1 - decay^t) and 1 / (1 - squared_decay^t), because the means start at
     * zero. t: this optimizer's step number, from 1. */
    float correction, squared_correction;
} gp_update;

/* Update rules, indexed by gp_solver. */
extern void (*const gp_optim_rules[])(const gp_update *update);

/* Create the optimizer selected by options->solver; the state starts at zero. `graph` and `options`
 * must outlive it. */
gp_status gp_optim_new(gp_optim **out, const gp_graph *graph, const gp_train_options *options, gp_error *err);
void gp_optim_free(gp_optim *optim);

/* Return the state for a checkpoint: gp_solver_state() blobs, one after the other. The optimizer
 * keeps ownership; the caller may write to the state.
 *   blobs  set to the blob count; may be NULL
 *   step   set to the step counter address; may be NULL */
float *gp_optim_state(gp_optim *optim, uint32_t *blobs, uint64_t **step);

/* Use the caller's memory for the state from now on and free the own memory. The caller has stored
 * the current state there. */
void gp_optim_place_state(gp_optim *optim, float *state);

/* Update all parameters for one step. Clips gradients in place if options->gradient_threshold is
 * set.
 *   gradients   summed over all ranks
 *   weight      total weight of all samples, above 0
 *   learn_rate  before the layer factors */
void gp_optim_step(gp_optim *optim, float *parameters, float *gradients, double weight, double learn_rate);

/* ---- one step in parts, without clipping: by several threads or processes, also into other blobs
 * ---- */

/* State of one update in parts. The caller may change the four pointers after gp_optim_begin(). */
typedef struct gp_optim_pass {
    const gp_optim *optim;
    const float *parameters, *state;     /* blobs before the step */
    float *next_parameters, *next_state; /* destination blobs; may be the same memory */
    gp_update update;                    /* terms that are the same for all parameters */
    double learn_rate;
} gp_optim_pass;

/* Prepare an update of the optimizer's own state in place. Does not change the optimizer. */
void gp_optim_begin(gp_optim_pass *pass, const gp_optim *optim, float *parameters, double weight,
                    double learn_rate);

/* Update elements [first, first + count) of a tensor. Results are bitwise identical however the
 * tensor is divided. Updates into other blobs bypass the caches; see gp_optim_flush().
 *   parameter  tensor index
 *   gradients  gradient of these elements, [count] */
void gp_optim_update(const gp_optim_pass *pass, uint32_t parameter, size_t first, size_t count,
                     const float *gradients);

/* Make the gp_optim_update() writes that bypassed the caches visible to other threads and
 * processes. */
void gp_optim_flush(void);

/* Count the step, after all parts are done on all ranks. */
void gp_optim_end(gp_optim *optim);

/* Move the running statistics towards a step's moments, at their own rate.
 *   gradients  summed over all ranks; holds sums of x - mean and (x - mean)^2 in place of gradients
 *   samples    samples on all ranks in the step
 *   whole      replace the running statistics by the moments */
void gp_statistics_commit(const gp_graph *graph, float *parameters, const float *gradients, double samples,
                          bool whole);

#endif
