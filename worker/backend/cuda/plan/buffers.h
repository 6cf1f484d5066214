/* Device memory that every call of a plan reads and writes, other than activations. Private to this
 * folder. */
#ifndef GP_CUDA_BUFFERS_H
#define GP_CUDA_BUFFERS_H

#include "worker/backend/backend.h"
#include "worker/backend/cuda/plan/heap.h"

/* Number of sums: GP_SUMS, then the header of a device-resident step: samples, stop, pause. */
enum { PLAN_SUMS = GP_SUMS + 3 };

/* The buffers of a plan. */
typedef struct plan_buffers {
    /* [micro_batch], as stored; NULL: inference, where slots contain the samples */
    void *samples;
    void *targets;        /* [micro_batch] */
    float *scores;        /* [micro_batch] */
    float *parameters;    /* parameter blob */
    float *gradients;     /* same layout; NULL: inference */
    float *class_weights; /* class weights of all ops that have any, in op order; NULL: none */
    double *sums;         /* [PLAN_SUMS] */
    gp_kernel_call *call; /* current call */
} plan_buffers;

/* Allocate the buffers from the heap. */
gp_status gp_buffers_take(plan_buffers *buffers, plan_heap *heap, const gp_graph *graph,
                          const gp_plan_options *options, gp_error *err);

/* Return the class weights of op `index`. NULL: it has none. */
float *gp_buffers_class_weights(const plan_buffers *buffers, const gp_graph *graph, gp_phase phase,
                                uint32_t index);

/* Upload the parameters from the host. */
gp_status gp_buffers_put_parameters(const plan_buffers *buffers, gp_device *device, const gp_graph *graph,
                                    const float *parameters, gp_error *err);

/* Set the sums to 0. */
gp_status gp_buffers_clear_sums(const plan_buffers *buffers, gp_device *device, gp_error *err);

#endif
