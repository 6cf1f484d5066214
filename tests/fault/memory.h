/* memory.h -- every allocation of the process fails on demand and is counted: ours, and those that libraries make.
 *
 * memory.c defines malloc and its relatives in the test, before the C library's.  Under a sanitizer, which has its own,
 * the same is done to gp_malloc and its relatives alone (common/base/memory/alloc.h). */
#ifndef GP_TEST_MEMORY_H
#define GP_TEST_MEMORY_H

#include <stdint.h>

/* The n-th allocation of this thread from now fails, once; 0 = none does. */
void memory_fail_nth(uint64_t n);

/* Whether it has struck. */
int memory_struck(void);

/* Blocks that are allocated and not freed, by any thread. */
int64_t memory_live(void);

#endif
