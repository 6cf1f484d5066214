/* memory.h: count all allocations in the process, including those by libraries, and make them fail
 * on demand.
 *
 * memory.c defines malloc() and related functions in the test, before the C library's. Under a
 * sanitizer, which interposes its own, only gp_malloc() and related functions
 * (common/base/memory/alloc.h) are affected. */
#ifndef GP_TEST_MEMORY_H
#define GP_TEST_MEMORY_H

#include <stdint.h>

/* Make the n-th allocation of this thread from now fail, once; 0: none. */
void memory_fail_nth(uint64_t n);

/* Return whether the allocation has failed. */
int memory_struck(void);

/* Return the number of live blocks, allocated by any thread. */
int64_t memory_live(void);

#endif
