/* Device memory that ops reserve before it is allocated. */
#include "worker/backend/cuda/plan/region.h"

#include <assert.h>

/* Placeholders are outside the address space. Those of region `which` start at (which + 1) <<
 * BASE_SHIFT. */
enum { BASE_SHIFT = 60, ALIGNMENT = 256 };

void *gp_region_reserve(plan_region regions[REGIONS], int which, size_t *offset, size_t bytes)
{
    const uintptr_t placeholder = ((uintptr_t)which + 1) << BASE_SHIFT | *offset;

    *offset += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (*offset > regions[which].bytes)
        regions[which].bytes = *offset;
    return (void *)placeholder;
}

void *gp_region_address(const plan_region regions[REGIONS], const void *pointer)
{
    const uintptr_t at = (uintptr_t)pointer, region = at >> BASE_SHIFT;

    assert(region <= REGIONS);
    return region == 0 ? (void *)at : regions[region - 1].at + (at - (region << BASE_SHIFT));
}
