/* Device memory that ops reserve before it is allocated. Private to this folder.
 *
 * The memory size is known only after all ops in a plan have been lowered. Until then, a pointer
 * into a region is a placeholder: an offset from a base outside the address space.
 * gp_region_address() replaces it. */
#ifndef GP_CUDA_REGION_H
#define GP_CUDA_REGION_H

#include <stddef.h>
#include <stdint.h>

/* All ops share the scratch region, because they run one after the other. Memory in LASTING belongs
 * to one op for the lifetime of the plan. All library calls share the workspace. */
enum { REGION_SCRATCH, REGION_LASTING, REGION_WORKSPACE, REGIONS };

/* A region. */
typedef struct plan_region {
    char *at;     /* device memory; NULL: not allocated yet */
    size_t bytes; /* reserved */
} plan_region;

/* Reserve bytes at *offset in a region, advance *offset, and return a placeholder. */
void *gp_region_reserve(plan_region regions[REGIONS], int which, size_t *offset, size_t bytes);

/* Return the address for a placeholder; return other pointers unchanged. */
void *gp_region_address(const plan_region regions[REGIONS], const void *pointer);

#endif
