#include "tests/fuzz/heap.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic int64_t live, most;
static int64_t begun;

void heap_begin(void)
{
    begun = atomic_load(&live);
    atomic_store(&most, begun);
}

int64_t heap_most(void)
{
    return atomic_load(&most) - begun;
}

#if GP_HEAP_COUNTED

/* glibc's allocator, under its internal names. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *block);

static void count(int64_t bytes)
{
    int64_t now = atomic_fetch_add_explicit(&live, bytes, memory_order_relaxed) + bytes;
    int64_t before = atomic_load_explicit(&most, memory_order_relaxed);

    while (now > before && !atomic_compare_exchange_weak_explicit(&most, &before, now, memory_order_relaxed,
                                                                  memory_order_relaxed))
        ;
}

static void *counted(void *block)
{
    if (block != NULL)
        count((int64_t)malloc_usable_size(block));
    return block;
}

void *malloc(size_t bytes)
{
    return counted(__libc_malloc(bytes));
}

void *calloc(size_t number, size_t size)
{
    return counted(__libc_calloc(number, size));
}

/* Both blocks may exist at the same time, so both are counted. */
void *realloc(void *old, size_t bytes)
{
    int64_t had = old == NULL ? 0 : (int64_t)malloc_usable_size(old);
    void *block = __libc_realloc(old, bytes);

    if (block != NULL && block != old)
        counted(block);
    else if (block != NULL)
        count((int64_t)malloc_usable_size(block));
    if (block != NULL || bytes == 0)
        count(-had);
    return block;
}

void *memalign(size_t alignment, size_t bytes)
{
    return counted(__libc_memalign(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return counted(__libc_memalign(alignment, bytes));
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = counted(__libc_memalign(alignment, bytes));

    if (block == NULL)
        return ENOMEM;
    *out = block;
    return 0;
}

void free(void *block)
{
    if (block != NULL)
        count(-(int64_t)malloc_usable_size(block));
    __libc_free(block);
}

/* Count anonymous mappings by libraries. Unmapped memory stays counted: the result is an upper
 * bound. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t from)
{
    void *map = (void *)(uintptr_t)syscall(SYS_mmap, at, bytes, protection, flags, fd, from);

    if (map != MAP_FAILED && (flags & MAP_ANONYMOUS) != 0 && (protection & PROT_WRITE) != 0)
        count((int64_t)bytes);
    return map;
}

#endif
