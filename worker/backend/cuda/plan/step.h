/* Work units on the device, step lists in execution order, device memory that steps reserve, and
 * step sequences that run without the host. Private to this folder. */
#ifndef GP_CUDA_STEP_H
#define GP_CUDA_STEP_H

#include "worker/backend/cuda/libraries/device.h"

/* ---- regions: device memory that ops reserve before it is allocated ----
 *
 * The memory size is known only after all ops in a plan have been lowered. Until then, a pointer
 * into a region is a placeholder: an offset from a base outside the address space.
 * gp_region_address() replaces it. */

/* All ops share the scratch region, because they run one after the other. Memory in PERSISTENT
 * belongs to one op for the plan's lifetime. All library calls share the workspace. */
enum { REGION_SCRATCH, REGION_PERSISTENT, REGION_WORKSPACE, REGIONS };

/* A region. */
typedef struct plan_region {
    char *at;     /* device memory; NULL: not allocated yet */
    size_t bytes; /* reserved */
} plan_region;

/* Reserve bytes at *offset in a region, advance *offset, and return a placeholder. */
void *gp_region_reserve(plan_region regions[REGIONS], int which, size_t *offset, size_t bytes);

/* Return the address for a placeholder; return other pointers unchanged. */
void *gp_region_address(const plan_region regions[REGIONS], const void *pointer);

/* ---- steps ---- */

/* Step kind. */
typedef enum step_kind {
    STEP_KERNEL,
    STEP_CONV,
    STEP_PRODUCT,
    /* synchronised batch norm: the host adds `sums` over the ranks, then the kernel reads them */
    STEP_COUPLE,
    STEP_CUSTOM_LOSS, /* the host computes a loss; always a separate stretch */
} step_kind;

/* A step. */
typedef struct step {
    step_kind kind;
    gp_kernel kernel;      /* KERNEL and COUPLE only, like `args` and `count` */
    gp_kernel_args args;   /* images, numbers and pointers */
    uint32_t count;        /* work items */
    gp_device_work *work;  /* owned; CONV and PRODUCT only, otherwise NULL */
    gp_device_operands at; /* operands of `work`, or scores and gradient of OWN_LOSS */
    double *sums;          /* COUPLE only: [doubles] */
    size_t doubles;
    uint32_t op; /* op index for the step */
} step;

/* Steps in execution order. */
typedef struct step_list {
    step *step;
    uint32_t count;
} step_list;

/* Append a step; all other members are 0. NULL: out of memory. */
step *gp_step_add(step_list *list, step_kind kind, uint32_t op);

/* Free all steps except the first `count`. The list keeps the memory. */
void gp_step_cut(step_list *list, uint32_t count);
void gp_step_list_free(step_list *list);

/* Replace region placeholders by addresses, in all steps from `first` on. */
void gp_step_move(step_list *list, uint32_t first, const plan_region regions[REGIONS]);

/* ---- stretches: the forward pass, the backward pass, and the parts between losses that the host
 * computes ----
 *
 * The second run records a stretch as a graph, and later runs replay the graph. The first run
 * launches each step, because libraries load kernels at their first use, which cannot be
 * recorded. */

enum { STRETCHES_MAX = 8 };

/* A step sequence. */
typedef struct stretch {
    const step_list *list;
    uint32_t first, count; /* range in the list */
    bool forward;
    /* forward, but after a loss that the host computes: it prepares the backward pass */
    bool after_loss;
    bool warm;              /* has run once */
    gp_device_graph *graph; /* NULL: not recorded yet */
} stretch;

/* All stretches of a plan. */
typedef struct stretch_table {
    stretch preparation; /* run before the others if parameters may have changed */
    stretch stretch[STRETCHES_MAX];
    uint32_t count;
} stretch_table;

/* Divide the steps after the forward pass and at losses that the host computes. forward_count: op
 * count in the forward pass. */
gp_status gp_stretches_cut(stretch_table *table, const step_list *prepare, const step_list *steps,
                           uint32_t forward_count, gp_error *err);
void gp_stretches_free(stretch_table *table);

/* Return true if the stretch is a loss that the host computes. */
static inline bool gp_stretch_is_loss(const stretch *part)
{
    return part->list->step[part->first].kind == STEP_CUSTOM_LOSS;
}

#endif
