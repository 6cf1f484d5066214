/* region.h -- device memory that ops reserve before it is allocated.  Private to this folder.
 *
 * How much memory the ops of a plan need is known when all of them are lowered.  Until then a pointer
 * into a region is a placeholder: an offset from a base that is no address.  gp_region_address()
 * replaces it. */
#ifndef GP_CUDA_REGION_H
#define GP_CUDA_REGION_H

#include <stddef.h>
#include <stdint.h>

/* Scratch is shared by all ops, which run one after the other.  Bytes of LASTING belong to one op for
 * as long as the plan.  The workspace is shared by the calls of the libraries. */
enum { REGION_SCRATCH, REGION_LASTING, REGION_WORKSPACE, REGIONS };

typedef struct plan_region {
    char *at;     /* device memory; NULL: not allocated yet */
    size_t bytes; /* reserved */
} plan_region;

/* Reserve bytes at *offset of a region, advance *offset past them, and return a placeholder. */
void *gp_region_reserve(plan_region regions[REGIONS], int which, size_t *offset, size_t bytes);
/* Return the address that a placeholder stands for; return other pointers as they are. */
void *gp_region_address(const plan_region regions[REGIONS], const void *pointer);

#endif
