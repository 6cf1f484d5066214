/* User-defined layer kinds: C functions that networks use by name like any other kind.
 *
 *   static gp_status swish_forward(const gp_layer_call *call, gp_error *err)
 *   {
 *       for (size_t i = 0; i < call->count * call->input_size[0]; i++)
 *           call->y[i] = call->x[0][i] / (1.0f + expf(-call->x[0][i]));
 *       return GP_OK;
 *   }
 *   ...
 *   static const gp_layer_kind swish = {
 *       .name = "swish", .forward = swish_forward, .backward = swish_backward };
 *
 *   status = gp_layer_kind_add(&swish, err);    before the first gp_model_open() that names it
 *
 * A kind has three functions. infer() determines the output shape and the parameters. forward()
 * computes the output. backward() computes the gradients of the summed losses (not their mean) with
 * respect to inputs and parameters. All data is float32, dense, one sample after another; a sample
 * has shape [C, H, W] or [F]. gp_model_check_gradients() (train_task.h) compares backward() with
 * forward(). */
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

/* Limits. */
enum {
    GP_LAYER_KIND_DIMS = 4,       /* dimensions in a shape */
    GP_LAYER_KIND_INPUTS = 2,     /* inputs per layer */
    GP_LAYER_KIND_PARAMETERS = 3, /* parameter tensors per layer */
    GP_LAYER_KIND_SETTINGS = 8,   /* settings per kind */
    GP_LAYER_KINDS_MAX = 64,      /* user-defined kinds per worker */
};

/* Shape, outermost dimension first. */
typedef struct gp_layer_dims {
    uint32_t rank;
    int64_t dim[GP_LAYER_KIND_DIMS];
} gp_layer_dims;

/* A number that networks can set for layers of this kind: {"kind": "swish", "beta": 2}. */
typedef struct gp_layer_setting {
    const char *name;          /* NULL ends a list */
    double fallback, min, max; /* default; allowed range, inclusive */
    const char *help;          /* one line; may be NULL */
} gp_layer_setting;

/* Initial values for a parameter tensor. */
typedef enum gp_layer_start {
    GP_LAYER_START_WEIGHTS, /* by the training's initializer, from fan_in and fan_out */
    GP_LAYER_START_ZEROS,
    GP_LAYER_START_ONES,
} gp_layer_start;

/* A layer's parameter tensor. */
typedef struct gp_layer_parameter {
    /* Second part of the tensor name LAYER.ROLE, 1 to 15 bytes. The layer's weight factors apply to
     * "weight" and "scale", the bias factors to all others. */
    const char *role;
    gp_layer_dims dims;
    gp_layer_start start;
    int64_t fan_in, fan_out; /* for GP_LAYER_START_WEIGHTS; at least 1 */
} gp_layer_parameter;

/* Input and output for infer(). */
typedef struct gp_layer_plan {
    uint32_t input_count;
    gp_layer_dims inputs[GP_LAYER_KIND_INPUTS]; /* for one sample */
    const double *settings;                     /* in the kind's order */
    gp_layer_dims output; /* initially equal to the first input; infer() may change it */
    uint32_t parameter_count;
    gp_layer_parameter parameters[GP_LAYER_KIND_PARAMETERS];
    size_t saved; /* float32 values per sample that forward() keeps for backward(); 0: none */
} gp_layer_plan;

/* Arguments for forward() and backward(). Both calls receive the same samples. */
typedef struct gp_layer_call {
    uint32_t count; /* samples */
    uint32_t input_count;
    size_t input_size[GP_LAYER_KIND_INPUTS], output_size; /* elements per sample */
    gp_layer_dims inputs[GP_LAYER_KIND_INPUTS], output;
    const double *settings;
    const float *x[GP_LAYER_KIND_INPUTS];
    const float *parameters[GP_LAYER_KIND_PARAMETERS];
    float *y; /* written by forward(), read by backward() */
    /* written by forward(), read by backward(); NULL: none, or inference */
    float *saved;
    const float *dy;                            /* backward(): gradient with respect to y */
    float *dx[GP_LAYER_KIND_INPUTS];            /* overwritten by backward(); NULL: not needed */
    float *gradients[GP_LAYER_KIND_PARAMETERS]; /* backward() ADDS to these */
    bool training;

    /* For random draws that are equal in forward() and backward(), and for any number of
     * workers. */
    uint64_t seed, step;
    uint64_t position; /* first sample's index in the mini-batch over all workers */
    uint32_t layer;    /* index in the network */
} gp_layer_call;

/* A user-defined layer kind. */
typedef struct gp_layer_kind {
    const char *name;                 /* lower-case letters, digits and '_'; must be unused */
    const char *help;                 /* one line; may be NULL */
    uint32_t inputs;                  /* 0 means 1 */
    const gp_layer_setting *settings; /* terminated by a NULL name; may be NULL */
    /* Several threads may call forward(), and backward() for layers without parameters, at the same
     * time, each with some samples. Otherwise, one thread makes a single call with all samples. */
    bool parallel;
    /* results depend on all samples in a call: a worker must process the whole slice in one call */
    bool couples_samples;
    /* NULL: y has x's shape, and there are no parameters */
    gp_status (*infer)(gp_layer_plan *plan, gp_error *err);
    gp_status (*forward)(const gp_layer_call *call, gp_error *err);
    gp_status (*backward)(const gp_layer_call *call, gp_error *err);
} gp_layer_kind;

/* Register a layer kind in this worker until the lease ends. Everything that *kind points to must
 * remain valid, for example static constants. Registering the same kind again has no effect.
 * GP_EINVAL: the name is taken or invalid, a function is missing, or a default is out of range.
 * GP_ELIMIT: GP_LAYER_KINDS_MAX kinds are registered. */
gp_status gp_layer_kind_add(const gp_layer_kind *kind, gp_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
