/* step.h -- one unit of work on the device, and lists of them in the order in which they run.
 * Private to this folder. */
#ifndef GP_CUDA_STEP_H
#define GP_CUDA_STEP_H

#include "worker/backend/cuda/libraries/device.h"
#include "worker/backend/cuda/plan/region.h"

typedef enum step_kind {
    STEP_KERNEL,
    STEP_CONV,
    STEP_PRODUCT,
    STEP_COUPLE,   /* the host adds `sums` over the ranks: synchronised batch norm */
    STEP_OWN_LOSS, /* the host computes a loss; always a stretch by itself */
} step_kind;

typedef struct step {
    step_kind kind;
    gp_kernel kernel;      /* of KERNEL, as are the next two */
    gp_kernel_args args;   /* its images, numbers and pointers */
    uint32_t count;        /* work items */
    gp_device_work *work;  /* owned; of CONV and PRODUCT, else NULL */
    gp_device_operands at; /* of `work`, or the scores and the gradient of OWN_LOSS */
    double *sums;          /* of COUPLE: [doubles] */
    size_t doubles;
    uint32_t op; /* index of the op that it belongs to */
} step;

typedef struct step_list {
    step *step;
    uint32_t count;
} step_list;

/* Append a step whose other members are 0.  NULL: no memory. */
step *gp_step_add(step_list *list, step_kind kind, uint32_t op);
/* Free all steps but the first `count`; the list's memory stays. */
void gp_step_cut(step_list *list, uint32_t count);
void gp_step_list_free(step_list *list);
/* Return the bytes that the steps take on the host. */
size_t gp_step_list_bytes(const step_list *list);
/* Replace the placeholders in the steps from `first` on by addresses. */
void gp_step_move(step_list *list, uint32_t first, const plan_region regions[REGIONS]);

#endif
