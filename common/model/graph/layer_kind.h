/* layer_kind.h -- a layer kind of your own: C functions that networks name like any other kind.
 *
 *     static gp_status swish_forward(const gp_layer_call *call, gp_error *err)
 *     {
 *         for (size_t i = 0; i < call->count * call->input_size[0]; i++)
 *             call->y[i] = call->x[0][i] / (1.0f + expf(-call->x[0][i]));
 *         return GP_OK;
 *     }
 *     ...
 *     static const gp_layer_kind swish = { .name = "swish", .forward = swish_forward, .backward = swish_backward };
 *
 *     status = gp_layer_kind_add(&swish, err);       before the first gp_model_open() that names it
 *
 * A kind says what comes out (infer), computes it (forward), and computes the gradients of the SUM of the losses with
 * respect to its inputs and parameters (backward).  Everything is float32, dense, sample after sample; a sample has the
 * shape [C, H, W] or [F].  gp_model_check_gradients() (train_task.h) compares backward with forward. */
#ifndef GP_LAYER_KIND_H
#define GP_LAYER_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradpool/error.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum {
    GP_LAYER_KIND_DIMS = 4,
    GP_LAYER_KIND_INPUTS = 2,
    GP_LAYER_KIND_PARAMETERS = 3,
    GP_LAYER_KIND_SETTINGS = 8,
    GP_LAYER_KINDS_MAX = 64, /* of a worker */
};

typedef struct gp_layer_dims {
    uint32_t rank;
    int64_t dim[GP_LAYER_KIND_DIMS];
} gp_layer_dims;

/* A number that a network gives to a layer of this kind: {"kind": "swish", "beta": 2}. */
typedef struct gp_layer_setting {
    const char *name;
    double fallback, min, max; /* inclusive */
    const char *help;
} gp_layer_setting;

typedef enum gp_layer_start {
    GP_LAYER_START_WEIGHTS, /* by the training's initializer, from fan_in and fan_out */
    GP_LAYER_START_ZEROS,
    GP_LAYER_START_ONES,
} gp_layer_start;

typedef struct gp_layer_parameter {
    const char *
        role; /* its tensor is called LAYER.ROLE.  "weight" and "scale" have the layer's weight factors, others
                       * its bias factors */
    gp_layer_dims dims;
    gp_layer_start start;
    int64_t fan_in, fan_out; /* of WEIGHTS; at least 1 */
} gp_layer_parameter;

/* What infer reads and fills in. */
typedef struct gp_layer_plan {
    uint32_t input_count;
    gp_layer_dims inputs[GP_LAYER_KIND_INPUTS]; /* of one sample */
    const double *settings;                     /* in the order of the kind's list */
    gp_layer_dims output;                       /* the first input's, unless it is changed */
    uint32_t parameter_count;
    gp_layer_parameter parameters[GP_LAYER_KIND_PARAMETERS];
    size_t saved; /* float32 numbers of each sample that forward leaves for backward; 0 = none */
} gp_layer_plan;

/* One call: `count` samples, the same in forward and backward. */
typedef struct gp_layer_call {
    uint32_t count;
    uint32_t input_count;
    size_t input_size[GP_LAYER_KIND_INPUTS], output_size; /* elements of one sample */
    gp_layer_dims inputs[GP_LAYER_KIND_INPUTS], output;
    const double *settings;
    const float *x[GP_LAYER_KIND_INPUTS];
    const float *parameters[GP_LAYER_KIND_PARAMETERS];
    float *y;        /* forward writes it; backward reads it */
    float *saved;    /* forward writes it; backward reads it.  NULL when there is none, and in inference */
    const float *dy; /* backward: the gradient with respect to y */
    float *dx[GP_LAYER_KIND_INPUTS];            /* backward writes it; NULL: nobody needs it */
    float *gradients[GP_LAYER_KIND_PARAMETERS]; /* backward ADDS to it */
    bool training;
    /* For random draws that are the same in forward and backward and on any number of workers. */
    uint64_t seed, step;
    uint64_t position; /* of the first sample in the mini-batch of all workers */
    uint32_t layer;    /* its place in the network */
} gp_layer_call;

typedef struct gp_layer_kind {
    const char *name;                 /* lower-case letters, digits and '_'; not one that there is already */
    const char *help;                 /* one line; may be NULL */
    uint32_t inputs;                  /* 0 means 1 */
    const gp_layer_setting *settings; /* ended by a NULL name; may be NULL */
    /* forward, and backward of layers without parameters, may be called by several threads of the worker at once, each
     * with some of the samples.  Else all samples come in one call, on one thread. */
    bool parallel;
    bool couples_samples; /* the samples of a call have something in common: a share must be one call */
    gp_status (*infer)(gp_layer_plan *plan, gp_error *err); /* may be NULL: y is like x, nothing is learned */
    gp_status (*forward)(const gp_layer_call *call, gp_error *err);
    gp_status (*backward)(const gp_layer_call *call, gp_error *err);
} gp_layer_kind;

/* gp_layer_kind_add -- make a kind known to this worker, until the lease ends.  What it points at has to stay; a static
 * constant does.  The same kind a second time is fine.
 * GP_EINVAL: the name is taken or no name, a function is missing, a setting's default is outside of its range.
 * GP_ELIMIT: GP_LAYER_KINDS_MAX are known. */
gp_status gp_layer_kind_add(const gp_layer_kind *kind, gp_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
