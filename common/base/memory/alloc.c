/* Counted allocation functions. Atomic counters allow calls from any thread. */
#include "common/base/memory/alloc.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static _Atomic uint64_t calls;          /* see gp_alloc_stats */
static _Atomic int64_t live;            /* see gp_alloc_stats */
static _Atomic uint64_t fail_countdown; /* allocations until one fails; 0: no failure injected */

/* Count one allocation. Return whether gp_alloc_fail_nth() selected it to fail. */
static bool alloc_refused(void)
{
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    uint64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);

    while (left != 0)
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1))
            return left == 1;
    return false;
}

/* Count a live block and return it; NULL is passed through. */
static void *alloc_counted(void *block)
{
    if (block != NULL)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return block;
}

void *gp_malloc(size_t bytes)
{
    return alloc_refused() ? NULL : alloc_counted(malloc(bytes == 0 ? 1 : bytes));
}

void *gp_calloc(size_t count, size_t size)
{
    if (alloc_refused())
        return NULL;
    if (count == 0 || size == 0)
        count = size = 1;
    /* calloc() also detects the overflow, but a sanitizer's calloc() aborts the process. */
    if (count > SIZE_MAX / size)
        return NULL;
    return alloc_counted(calloc(count, size));
}

void *gp_realloc_array(void *old, size_t count, size_t size)
{
    if (alloc_refused())
        return NULL;
    if (count == 0 || size == 0)
        count = size = 1;
    if (count > SIZE_MAX / size)
        return NULL;
    void *block = realloc(old, count * size);

    return old == NULL ? alloc_counted(block) : block;
}

/* The array is full whenever count is 0 or a power of two of at least 16, so the capacity follows
 * from the count. */
void *gp_array_grow(void *array, size_t count, size_t size)
{
    const size_t least = 16;

    if (count != 0 && (count < least || (count & (count - 1)) != 0))
        return array;
    return gp_realloc_array(array, count < least ? least : 2 * count, size);
}

/* Request huge pages for a new block, before the first write. Failure is harmless: the kernel then
 * uses small pages. */
static void pages_huge(void *block, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
    if (block != NULL && bytes >= 2 * HUGE_PAGE) {
        uintptr_t first = ((uintptr_t)block + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
        uintptr_t end = ((uintptr_t)block + bytes) & ~(uintptr_t)(HUGE_PAGE - 1);

        madvise((void *)first, end - first, MADV_HUGEPAGE);
    }
#endif
}

void *gp_aligned_calloc(size_t alignment, size_t bytes)
{
    assert(alignment != 0 && (alignment & (alignment - 1)) == 0);
    if (alloc_refused() || bytes > SIZE_MAX - alignment)
        return NULL;
    size_t rounded = (bytes + alignment - 1) & ~(alignment - 1);
    void *block = alloc_counted(aligned_alloc(alignment, rounded == 0 ? alignment : rounded));

    pages_huge(block, rounded);
    return block == NULL ? NULL : memset(block, 0, rounded);
}

char *gp_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = gp_malloc(bytes);

    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

void *gp_reserve(size_t bytes)
{
    void *block = alloc_refused() ? MAP_FAILED
                                  : mmap(NULL, bytes == 0 ? 1 : bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (block == MAP_FAILED)
        return NULL;
    pages_huge(block, bytes);
    return alloc_counted(block);
}

void gp_unreserve(void *block, size_t bytes)
{
    if (block == NULL)
        return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    munmap(block, bytes == 0 ? 1 : bytes);
}

void gp_free(void *block)
{
    if (block != NULL)
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(block);
}

gp_alloc_stats gp_alloc_get_stats(void)
{
    return (gp_alloc_stats){ .calls = atomic_load(&calls), .live = atomic_load(&live) };
}

uint64_t gp_alloc_fail_nth(uint64_t n)
{
    return atomic_exchange(&fail_countdown, n);
}
