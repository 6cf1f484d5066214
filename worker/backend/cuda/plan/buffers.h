/* buffers.h -- what every call of a plan reads and writes on the device besides activations.
 * Private to this folder. */
#ifndef GP_CUDA_BUFFERS_H
#define GP_CUDA_BUFFERS_H

#include "worker/backend/backend.h"
#include "worker/backend/cuda/plan/heap.h"

/* The sums of a plan: GP_SUMS, then the header of a step that is committed on the device: samples, stop, pause. */
enum { PLAN_SUMS = GP_SUMS + 3 };

typedef struct plan_buffers {
    void *samples;        /* [micro_batch], as stored; NULL: inference, whose slots have them */
    void *targets;        /* [micro_batch] */
    float *scores;        /* [micro_batch] */
    float *parameters;    /* the blob */
    float *gradients;     /* the same layout; NULL: inference */
    float *class_weights; /* of all ops with weights, in the order of the ops; NULL: none */
    double *sums;         /* [PLAN_SUMS] */
    gp_kernel_call *call; /* the current call */
} plan_buffers;

gp_status gp_buffers_take(plan_buffers *buffers, plan_heap *heap, const gp_graph *graph,
                          const gp_plan_options *options, gp_error *err);
/* Return the class weights of op `index`.  NULL: it has none. */
float *gp_buffers_class_weights(const plan_buffers *buffers, const gp_graph *graph, gp_phase phase,
                                uint32_t index);
/* Upload the host's parameters. */
gp_status gp_buffers_put_parameters(const plan_buffers *buffers, gp_device *device, const gp_graph *graph,
                                    const float *parameters, gp_error *err);
/* Set the sums to 0. */
gp_status gp_buffers_clear_sums(const plan_buffers *buffers, gp_device *device, gp_error *err);

#endif
