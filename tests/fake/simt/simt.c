/* simt.c: the threads of a block as fibres.
 *
 * A fibre runs threads one after the other until one of them waits. That thread keeps the fibre,
 * and the scheduler takes another fibre for the threads that have not started. A kernel without
 * barriers and shuffles therefore needs one fibre and two context switches per block. */
#include "tests/fake/simt/simt.h"

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { THREADS_MAX = 1024, WARP = 32, STACK_BYTES = 128 << 10, GUARD_BYTES = 64 << 10 };

typedef enum thread_state { READY, AT_BARRIER, AT_EXCHANGE, EXITED } thread_state;

/* Saved stack pointer and program counter. */
typedef struct jump {
    void *words[5];
} jump;

typedef struct fibre {
    ucontext_t context; /* for the first switch to it */
    jump saved;         /* for the others */
    bool begun;
    char *stack;
    void *asan_stack;
    struct fibre *next; /* in the list of idle fibres */
} fibre;

typedef struct thread {
    fibre *fibre; /* NULL: not started, or exited */
    thread_state state;
    uint32_t line, mask; /* while the thread waits */
    uint64_t bits;       /* AT_EXCHANGE: value for the other lanes */
} thread;

simt_index threadIdx, blockIdx, blockDim, gridDim;

/* One launch runs at a time, because __shared__ variables exist once. */
static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER;
static const simt_launch *running;
static simt_order requested = SIMT_EACH;
static uint64_t launches;

static thread threads[THREADS_MAX];
static uint32_t thread_order[THREADS_MAX], started;
static uint64_t exchanged[THREADS_MAX];
static thread *current;
static jump scheduler;
static fibre *idle;

/* Start and end of all __shared__ variables; NULL: no kernel has any. */
extern char __start_simt_shared[] __attribute__((weak));
extern char __stop_simt_shared[] __attribute__((weak));

void simt_fault(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "CUDA kernel, block %u: ", blockIdx.x);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

/* ---- fibres ---- */

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>

static void *scheduler_asan_stack;
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;

static void leave_scheduler(const fibre *to)
{
    __sanitizer_start_switch_fiber(&scheduler_asan_stack, to->stack, STACK_BYTES);
}

static void enter_scheduler(void)
{
    __sanitizer_finish_switch_fiber(scheduler_asan_stack, NULL, NULL);
}

static void leave_fibre(fibre *from)
{
    __sanitizer_start_switch_fiber(&from->asan_stack, scheduler_stack, scheduler_stack_bytes);
}

static void enter_fibre(const fibre *to)
{
    __sanitizer_finish_switch_fiber(to->asan_stack, &scheduler_stack, &scheduler_stack_bytes);
}
#else
static void leave_scheduler(const fibre *to)
{
    (void)to;
}

static void enter_scheduler(void)
{
}

static void leave_fibre(fibre *from)
{
    (void)from;
}

static void enter_fibre(const fibre *to)
{
    (void)to;
}
#endif

/* Save the caller in `from` and continue at `to`; NULL: begin the fibre `first`. swapcontext()
 * would make a system call for the signal mask in each switch, which took most of the tests' time.
 * GCC forbids both builtins in one function if they use the same buffer; these never do. ASan would
 * clear the shadow of the whole stack before each jump, so it does not instrument this function. */
static __attribute__((noinline, no_sanitize_address)) void jump_to(jump *from, jump *to, const fibre *first)
{
    if (__builtin_setjmp(from->words) != 0)
        return;
    if (to == NULL)
        setcontext(&first->context);
    else
        __builtin_longjmp(to->words, 1);
}

static void switch_to_fibre(fibre *to)
{
    const bool begun = to->begun;

    to->begun = true;
    leave_scheduler(to);
    jump_to(&scheduler, begun ? &to->saved : NULL, to);
    enter_scheduler();
}

static void switch_to_scheduler(fibre *from)
{
    leave_fibre(from);
    jump_to(&from->saved, &scheduler, NULL);
    enter_fibre(from);
}

/* Select the next thread to start as the current thread. Return false if all have started. */
static bool next_thread(fibre *on)
{
    if (started == running->threads)
        return false;
    current = &threads[thread_order[started++]];
    current->fibre = on;
    threadIdx.x = (unsigned)(current - threads);
    return true;
}

static void fibre_main(void)
{
    fibre *self = current->fibre;

    enter_fibre(self);
    for (;;) {
        do {
            running->kernel(running->args, running->count);
            current->state = EXITED;
            current->fibre = NULL;
        } while (next_thread(self));
        self->next = idle;
        idle = self;
        switch_to_scheduler(self);
    }
}

static void fibre_init(fibre *f)
{
    f->stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED || mprotect(f->stack, GUARD_BYTES, PROT_NONE) != 0)
        simt_fault("no memory for the stack of a thread");
    f->stack += GUARD_BYTES;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, fibre_main, 0);
}

static fibre *fibre_take(void)
{
    fibre *f = idle;

    if (f != NULL) {
        idle = f->next;
        return f;
    }
    f = calloc(1, sizeof(*f));
    assert(f != NULL);
    fibre_init(f);
    return f;
}

/* ---- waiting ---- */

static void thread_wait(thread_state state, uint32_t line)
{
    thread *self = current;

    self->state = state;
    self->line = line;
    switch_to_scheduler(self->fibre);
}

void simt_barrier(uint32_t line)
{
    thread_wait(AT_BARRIER, line);
}

const uint64_t *simt_exchange(uint32_t mask, uint64_t bits, uint32_t line)
{
    const uint32_t lane = threadIdx.x % WARP;

    if ((mask >> lane & 1) == 0)
        simt_fault("line %u: the mask %08x lacks lane %u, which calls", line, mask, lane);
    current->mask = mask;
    current->bits = bits;
    thread_wait(AT_EXCHANGE, line);
    return &exchanged[threadIdx.x / WARP * WARP];
}

static void fault_unmatched(const thread *waiting, const thread *other)
{
    const unsigned a = (unsigned)(waiting - threads), b = (unsigned)(other - threads);

    if (other->state == EXITED)
        simt_fault("thread %u waits in line %u for thread %u, which has exited", a, waiting->line, b);
    simt_fault("thread %u waits in line %u, thread %u in line %u", a, waiting->line, b, other->line);
}

/* Release the lanes that wait for each other with `first`, if all of them wait. */
static bool release_lanes(thread *first)
{
    const uint32_t warp = (uint32_t)(first - threads) / WARP * WARP;

    for (uint32_t lane = 0; lane < WARP; lane++) {
        const thread *other = &threads[warp + lane];

        if ((first->mask >> lane & 1) == 0)
            continue;
        if (warp + lane >= running->threads)
            simt_fault("line %u: lane %u does not exist", first->line, lane);
        if (other->state == EXITED)
            fault_unmatched(first, other);
        if (other->state != AT_EXCHANGE || other->mask != first->mask || other->line != first->line)
            return false;
    }
    for (uint32_t lane = 0; lane < WARP; lane++)
        if ((first->mask >> lane & 1) != 0) {
            exchanged[warp + lane] = threads[warp + lane].bits;
            threads[warp + lane].state = READY;
        }
    return true;
}

/* Release threads when no thread can run. Return false if all have exited. */
static bool release(void)
{
    const thread *waiting = NULL;
    bool released = false;

    for (uint32_t i = 0; i < running->threads; i++) {
        if (threads[i].state == AT_EXCHANGE)
            released |= release_lanes(&threads[i]);
        if (waiting == NULL && threads[i].state != EXITED)
            waiting = &threads[i];
    }
    if (released || waiting == NULL)
        return released;
    for (uint32_t i = 0; i < running->threads; i++)
        if (threads[i].state != AT_BARRIER || threads[i].line != waiting->line)
            fault_unmatched(waiting, &threads[i]);
    for (uint32_t i = 0; i < running->threads; i++)
        threads[i].state = READY;
    return true;
}

/* ---- launches ---- */

static void fill_order(uint32_t *order, uint32_t count, simt_order which, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = which == SIMT_BACKWARDS ? count - 1 - i : i;
    for (uint32_t i = count; which == SIMT_SHUFFLED && i > 1; i--) {
        uint32_t other, taken = order[i - 1];

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        other = (uint32_t)((seed >> 32) * i >> 32);
        order[i - 1] = order[other];
        order[other] = taken;
    }
}

typedef uint64_t shared_word __attribute__((vector_size(16), may_alias));

/* Keep the compiler from replacing a loop of stores with memset(), which is instrumented. */
#define NO_MEMSET() __asm__ volatile("" ::: "memory")

/* Fill shared memory with bytes that are NaN in every format. AddressSanitizer forbids access to
 * the space between two variables, so this function is not instrumented. Each block fills the
 * variables of all kernels, about 180 KiB: a loop over bytes took most of the time of the tests. */
__attribute__((no_sanitize_address)) static void shared_fill(void)
{
    char *at = __start_simt_shared, *const end = __stop_simt_shared;

    for (; at != end && (uintptr_t)at % sizeof(shared_word) != 0; at++) {
        *at = (char)0xff;
        NO_MEMSET();
    }
    for (; end - at >= (ptrdiff_t)sizeof(shared_word); at += sizeof(shared_word)) {
        *(shared_word *)at = ~(shared_word){ 0 };
        NO_MEMSET();
    }
    for (; at != end; at++) {
        *at = (char)0xff;
        NO_MEMSET();
    }
}

static void run_block(void)
{
    memset(threads, 0, running->threads * sizeof(threads[0]));
    started = 0;
    shared_fill();
    do {
        for (uint32_t k = 0; k < running->threads; k++) {
            thread *t = &threads[thread_order[k]];
            fibre *on = t->fibre;

            if (t->state != READY)
                continue;
            if (on == NULL) {
                assert(k == started);
                on = fibre_take();
                next_thread(on);
            }
            current = t;
            threadIdx.x = (unsigned)(t - threads);
            switch_to_fibre(on);
        }
    } while (release());
}

simt_launch simt_launch_of(const void *kernel, uint32_t blocks, uint32_t per_block, void **args)
{
    simt_launch launch = { .blocks = blocks, .threads = per_block };

    memcpy(&launch.kernel, &kernel, sizeof(kernel));
    memcpy(&launch.args, args[0], sizeof(launch.args));
    memcpy(&launch.count, args[1], sizeof(launch.count));
    return launch;
}

void simt_set_order(simt_order order)
{
    pthread_mutex_lock(&launch_lock);
    requested = order;
    pthread_mutex_unlock(&launch_lock);
}

void simt_run(const simt_launch *launch)
{
    uint32_t *blocks = malloc(launch->blocks * sizeof(*blocks));
    simt_order order;

    assert(blocks != NULL && launch->threads > 0 && launch->threads <= THREADS_MAX);
    pthread_mutex_lock(&launch_lock);
    order = requested == SIMT_EACH ? (simt_order)(launches % SIMT_EACH) : requested;
    fill_order(blocks, launch->blocks, order, launches);
    fill_order(thread_order, launch->threads, order, launches);
    launches++;
    running = launch;
    gridDim = (simt_index){ launch->blocks, 1, 1 };
    blockDim = (simt_index){ launch->threads, 1, 1 };
    for (uint32_t i = 0; i < launch->blocks; i++) {
        blockIdx.x = blocks[i];
        run_block();
    }
    running = NULL;
    pthread_mutex_unlock(&launch_lock);
    free(blocks);
}
