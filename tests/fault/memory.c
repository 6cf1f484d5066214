#include "tests/fault/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "common/base/memory/alloc.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

static uint64_t asked;

void memory_fail_nth(uint64_t n)
{
    uint64_t left = gp_alloc_fail_nth(n);

    if (n != 0)
        asked = n;
    else if (left == 0 && asked != 0)
        asked = UINT64_MAX; /* already failed once */
}

int memory_struck(void)
{
    return asked == UINT64_MAX;
}

int64_t memory_live(void)
{
    return gp_alloc_get_stats().live;
}

#else

/* glibc's allocator, under its internal names. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *block);

void *malloc(size_t bytes);
void *calloc(size_t count, size_t size);
void *realloc(void *old, size_t bytes);
void *memalign(size_t alignment, size_t bytes);
void *aligned_alloc(size_t alignment, size_t bytes);
int posix_memalign(void **out, size_t alignment, size_t bytes);
void free(void *block);

static _Thread_local uint64_t left;
static _Thread_local int struck;
static _Atomic int64_t live;

/* jansson 2.14 does not check whether the buffer for a long token could grow, and then accesses
 * memory beyond the end: never fail that allocation. For all others, json.c converts jansson's
 * errors to GP_ENOMEM. */
static int is_jansson_token(size_t bytes, const void *caller)
{
    Dl_info where;

    return bytes >= 32 && (bytes & (bytes - 1)) == 0 && dladdr(caller, &where) != 0 &&
           where.dli_fname != NULL && strstr(where.dli_fname, "libjansson") != NULL;
}

static int refused(size_t bytes, const void *caller)
{
    if (left == 0 || --left != 0)
        return 0;
    if (is_jansson_token(bytes, caller)) {
        left = 1;
        return 0;
    }
    struck = 1;
    errno = ENOMEM;
    return 1;
}

static void *counted(void *block)
{
    if (block != NULL)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return block;
}

void *malloc(size_t bytes)
{
    return refused(bytes, __builtin_return_address(0)) ? NULL : counted(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t size)
{
    return refused(count * size, __builtin_return_address(0)) ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *old, size_t bytes)
{
    if (refused(bytes, __builtin_return_address(0)))
        return NULL;
    void *block = __libc_realloc(old, bytes);

    if (old == NULL)
        return counted(block);
    if (bytes == 0 && block == NULL)
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    return block;
}

void *memalign(size_t alignment, size_t bytes)
{
    return refused(bytes, __builtin_return_address(0)) ? NULL : counted(__libc_memalign(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = memalign(alignment, bytes);

    if (block == NULL)
        return ENOMEM;
    *out = block;
    return 0;
}

void free(void *block)
{
    if (block != NULL)
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    __libc_free(block);
}

void memory_fail_nth(uint64_t n)
{
    left = n;
    if (n != 0)
        struck = 0;
}

int memory_struck(void)
{
    return struck;
}

int64_t memory_live(void)
{
    return atomic_load(&live);
}

#endif
