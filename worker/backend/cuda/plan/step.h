/* A unit of work on the device, and lists of steps in execution order. Private to this folder. */
#ifndef GP_CUDA_STEP_H
#define GP_CUDA_STEP_H

#include "worker/backend/cuda/libraries/device.h"
#include "worker/backend/cuda/plan/region.h"

/* Step kind. */
typedef enum step_kind {
    STEP_KERNEL,
    STEP_CONV,
    STEP_PRODUCT,
    STEP_COUPLE,   /* the host adds `sums` over the ranks: synchronised batch norm */
    STEP_OWN_LOSS, /* the host computes a loss; always a separate stretch */
} step_kind;

/* A step. */
typedef struct step {
    step_kind kind;
    gp_kernel kernel;      /* KERNEL only, like `args` and `count` */
    gp_kernel_args args;   /* images, numbers and pointers */
    uint32_t count;        /* work items */
    gp_device_work *work;  /* owned; CONV and PRODUCT only, otherwise NULL */
    gp_device_operands at; /* operands of `work`, or scores and gradient of OWN_LOSS */
    double *sums;          /* COUPLE only: [doubles] */
    size_t doubles;
    uint32_t op; /* index of the op that the step belongs to */
} step;

/* Steps in execution order. */
typedef struct step_list {
    step *step;
    uint32_t count;
} step_list;

/* Append a step; all other members are 0. NULL: out of memory. */
step *gp_step_add(step_list *list, step_kind kind, uint32_t op);

/* Free all steps except the first `count`. The list keeps its memory. */
void gp_step_cut(step_list *list, uint32_t count);
void gp_step_list_free(step_list *list);

/* Replace region placeholders by addresses, in all steps from `first` on. */
void gp_step_move(step_list *list, uint32_t first, const plan_region regions[REGIONS]);

#endif
