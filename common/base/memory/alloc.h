/* alloc.h -- every allocation of ours: overflow-checked, counted, and failable on demand.
 *
 * Tests walk "the n-th allocation fails" over each new/open function (SQLite's method), and check
 * that the number of live blocks is what it was before. */
#ifndef GP_ALLOC_H
#define GP_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* All return NULL when memory is out, when count * size overflows, or when the test hook says so.
 * A size of zero returns a unique pointer that must be freed. */
void *gp_malloc(size_t bytes);
void *gp_calloc(size_t count, size_t size);
void *gp_realloc_array(void *old, size_t count, size_t size); /* on failure `old` stays valid */
/* Make room for one more element in an array that has `count` elements and that only this function
 * allocates. The room is 16 elements, then the next power of two above `count`, so callers need not
 * store it. Return the array, which may have moved; NULL: no memory, and `array` stays valid. */
void *gp_array_grow(void *array, size_t count, size_t size);
void *gp_aligned_calloc(size_t alignment, size_t bytes); /* zeroed; alignment a power of two */
char *gp_strdup(const char *text);
void gp_free(void *block); /* accepts NULL */

/* Zeroed pages whose memory is taken as they are written; given back with their size.  NULL is fine there. */
void *gp_reserve(size_t bytes);
void gp_unreserve(void *block, size_t bytes);

typedef struct gp_alloc_stats {
    uint64_t calls; /* allocations asked for since the process began */
    int64_t live;   /* blocks allocated and not freed */
} gp_alloc_stats;

gp_alloc_stats gp_alloc_get_stats(void);

/* The n-th allocation from now fails (1 = the next), once; 0 switches the hook off.
 * Returns how many were left before the old hook would have fired; 0 = it fired or was off. */
uint64_t gp_alloc_fail_nth(uint64_t n);

#endif
