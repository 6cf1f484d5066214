/* Memory allocation with overflow checks, counters and failure injection. All gradpool code
 * allocates through these functions.
 *
 * Tests let the n-th allocation fail, for each n, in every new and open function (SQLite's method),
 * and verify that the live block count returns to the initial value.
 *
 * All allocating functions return NULL if memory is exhausted, if count * size overflows, or if a
 * test injected a failure. A size of zero returns a unique pointer, which must be freed as
 * usual. */
#ifndef GP_ALLOC_H
#define GP_ALLOC_H

#include <stddef.h>
#include <stdint.h>

void *gp_malloc(size_t bytes);                                /* not initialized */
void *gp_calloc(size_t count, size_t size);                   /* zeroed */
void *gp_realloc_array(void *old, size_t count, size_t size); /* on failure `old` stays valid */

/* Make room for one more element in an array with `count` elements, allocated by this function
 * only. The capacity is 16 elements, then the next power of two above `count`, so callers need not
 * store the capacity. Return the array, which may have moved. NULL: no memory; `array` stays
 * valid. */
void *gp_array_grow(void *array, size_t count, size_t size);
void *gp_aligned_calloc(size_t alignment, size_t bytes); /* zeroed; alignment: a power of two */
char *gp_strdup(const char *text);                       /* copy of a string */
void gp_free(void *block);                               /* accepts NULL */

/* Reserve zeroed pages. The kernel allocates each page on the first write. */
void *gp_reserve(size_t bytes);

/* Unmap pages from gp_reserve(); `bytes` must be the reserved size. Accepts NULL. */
void gp_unreserve(void *block, size_t bytes);

/* Per-process allocation counters. */
typedef struct gp_alloc_stats {
    uint64_t calls; /* allocations requested since the process started, including failed ones */
    int64_t live;   /* blocks allocated and not yet freed */
} gp_alloc_stats;

/* Return the current counters. */
gp_alloc_stats gp_alloc_get_stats(void);

/* Let the n-th allocation from now fail once (1: the next one); 0 disables the failure injection.
 * Return how many allocations were left before the previous failure; 0: it occurred, or none was
 * set. */
uint64_t gp_alloc_fail_nth(uint64_t n);

#endif
