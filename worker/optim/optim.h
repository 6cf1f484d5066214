/* optim.h -- update rules: the commit phase of a step.
 *
 * A rule sees dense blobs in the layout of graph.h.  It reads the summed gradient, divides by the step's
 * total weight once, and updates parameters and state in place; it needs no peer and allocates nothing, so
 * a rank's state is that of step s or of step s + 1 and never a mixture. */
#ifndef GP_OPTIM_H
#define GP_OPTIM_H

#include "common/base/error.h"
#include "common/model/graph/graph.h"
#include "common/model/train_options.h"

typedef struct gp_optim gp_optim;

/* One parameter tensor's update: count elements, from blobs to the same ones or to others. */
typedef struct gp_update {
    const float *parameters,
        *state; /* state: the rule's blobs, one after the other with stride state_stride */
    float *next_parameters, *next_state;
    size_t state_stride, next_stride;
    const float *gradients;
    size_t count;
    float gradient_scale; /* 1 / total weight of the step */
    float learn_rate, l2; /* the layer's factors are in them */
    float momentum;
    float decay, squared_decay, epsilon; /* of the mean gradient, of the mean squared gradient */
    /* 1 / (1 - decay^t) and the same of squared_decay: the means began at zero (t: steps of this optimiser, from 1). */
    float correction, squared_correction;
} gp_update;

typedef struct gp_optim_rule {
    const char *name;     /* as in gp_train_options */
    uint32_t state_blobs; /* float32 state per parameter */
    void (*update)(const gp_update *update);
} gp_optim_rule;

/* The rule of options->solver over the graph's parameters; state starts at zero.
 * graph and options must outlive it. */
gp_status gp_optim_new(gp_optim **out, const gp_graph *graph, const gp_train_options *options, gp_error *err);
void gp_optim_free(gp_optim *optim);

/* The state that a checkpoint holds: rule->state_blobs blobs one after the other, and the number of steps. Borrowed, may be
 * written. blobs, step: may be NULL. */
float *gp_optim_state(gp_optim *optim, uint32_t *blobs, uint64_t **step);

/* The state lies in blobs of the caller's from now on, which hold what it is: the optimiser's own are freed. */
void gp_optim_place_state(gp_optim *optim, float *state);

/* Update all parameters for one step.  Gradients above the threshold are clipped in place first.
 *   gradients  summed over all ranks      weight  the reduced total weight, > 0 */
void gp_optim_step(gp_optim *optim, float *parameters, float *gradients, double weight, double learn_rate);

/* ---- a step in parts, without clipping: by several threads or processes, from one place to another ---- */

typedef struct gp_optim_pass {
    const gp_optim *optim;
    const float *parameters, *state;     /* blobs, of the step before */
    float *next_parameters, *next_state; /* where they go: other blobs, or the same ones */
    gp_update update;                    /* what is the same for all parameters */
    double learn_rate;
} gp_optim_pass;

/* A pass over the optimiser's own state, in place until the caller says otherwise.  Nothing of the optimiser changes. */
void gp_optim_begin(gp_optim_pass *pass, const gp_optim *optim, float *parameters, double weight,
                    double learn_rate);

/* Elements [first, first + count) of a tensor, whose gradient is gradients[0, count).  The same bits, however the tensor is
 * cut.  Other blobs are written past the caches. */
void gp_optim_update(const gp_optim_pass *pass, uint32_t parameter, size_t first, size_t count,
                     const float *gradients);

/* What gp_optim_update() wrote past the caches is there for others to see. */
void gp_optim_flush(void);

/* All parts are done everywhere: the step counts. */
void gp_optim_end(gp_optim *optim);

/* Move running statistics towards the moments of a step of that many samples, all ranks' together.  gradients: the
 * reduced blob, with the statistics' sums where parameters have gradients. */
void gp_statistics_commit(const gp_graph *graph, float *parameters, const float *gradients, double samples);

/* Replace them by the moments of that many samples. */
void gp_statistics_set(const gp_graph *graph, float *parameters, const float *gradients, double samples);

#endif
