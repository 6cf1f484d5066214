/* task.h -- code that runs on the workers of a pool: C functions in a shared object.
 *
 *     #include <gradpool/task.h>
 *
 *     GP_TASK gp_status square(gp_task *task, gp_error *err)
 *     {
 *         size_t bytes;
 *         const double *x = gp_task_argument(task, &bytes);
 *         double y = x[0] * x[0];
 *
 *         if (bytes != sizeof(*x))
 *             return gp_fail(err, GP_EINVAL, "the argument has %zu bytes; expected one double", bytes);
 *         return gp_task_result(task, &y, sizeof(y), err);
 *     }
 *
 * Build it with `gradpool_add_tasks(mytasks mytasks.c)` in CMake, or cc -shared -fPIC -o mytasks.so mytasks.c; it is
 * named "mytasks.so:square" on the client's side (gradpool.h).  The object is shipped to each worker once and stays
 * loaded until the lease ends; then the worker starts afresh, so static variables live as long as the lease.
 *
 * A task runs in the worker's compute thread, one at a time, on the worker's own cores and device.  It may do what it
 * likes; a crash or an exit() ends this worker only, which is replaced, and the client hears how it died.
 *
 * Threads: these functions are for the thread that the task was called on, but gp_task_canceled() is for any.
 * Memory that they give stays valid until the task returns unless another time is said. */
#ifndef GP_TASK_H
#define GP_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradpool/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What both sides must have in common; a worker refuses an object of another number. */
#define GP_TASK_ABI 1

/* Before each task function: makes it visible to the worker, under its own name in C++ too. */
#ifdef __cplusplus
#define GP_TASK extern "C" __attribute__((visibility("default")))
#else
#define GP_TASK __attribute__((visibility("default")))
#endif

/* Every object says which ABI it was built for: this definition ends up in it by the inclusion.  Not const, because a
 * const of C++ is visible to its own file only. */
#ifndef GP_TASK_NO_ABI
__attribute__((weak, visibility("default"))) extern uint32_t gp_task_object_abi;
__attribute__((weak, visibility("default"))) uint32_t gp_task_object_abi = GP_TASK_ABI;
#endif

#pragma GCC visibility push(default)

typedef struct gp_task gp_task;

/* A task.  GP_OK, or what gp_fail() returned: its sentence reaches the client. */
typedef gp_status (*gp_task_fn)(gp_task *task, gp_error *err);

/* ---- who and where ---- */

/* In an spmd block: the index in the block, from 1, and how many take part.  Elsewhere: the worker's place in the
 * lease and the number of leased workers. */
uint32_t gp_task_index(const gp_task *task);
uint32_t gp_task_size(const gp_task *task);

/* The worker's number in its team, 1 .. size, as in `.worker` of a request and in messages; in a block too. */
uint32_t gp_task_worker(const gp_task *task);
int64_t gp_task_iteration(const gp_task *task); /* of a parfor: the value of the range; else 0 */
uint64_t gp_task_position(
    const gp_task *task); /* of a parfor: the iteration's position in the range, from 0 */
uint32_t gp_task_attempt(
    const gp_task *task); /* from 1: above 1, it was begun before on a worker that died, or failed */

typedef struct gp_task_device {
    bool gpu;
    uint32_t ordinal; /* cuda:N of this machine; the CPU is 0 */
    const char *uuid; /* "GPU-..." or "cpu-0-3" */
    const char *name;
    uint32_t cores; /* that this worker may use; it is bound to them unless they are shared */
} gp_task_device;

void gp_task_get_device(const gp_task *task, gp_task_device *out);

/* Whether the client, Ctrl-C or another rank's failure wants this task to end.  A task that has not returned one second
 * after it was asked loses its worker.  Any thread. */
bool gp_task_canceled(const gp_task *task);

/* ---- in and out ---- */

/* The argument, the same for all ranks of a block and all iterations of a loop; 16-byte aligned, read-only.  NULL and 0
 * when there is none. */
const void *gp_task_argument(const gp_task *task, size_t *bytes);

/* Of a parfor with sliced input: this iteration's element. */
const void *gp_task_input(const gp_task *task, size_t *bytes);
/* Of a parfor with sliced output: this iteration's element, zero at first, to be written. */
void *gp_task_output(const gp_task *task, size_t *bytes);
/* Of a parfor with a reduction: the accumulator into which this iteration combines its value.  It begins as the
 * reduction's identity (for combine functions of yours: zero bytes). */
void *gp_task_accumulator(const gp_task *task, size_t *bytes);

/* The result, copied; a second call replaces the first.  gp_task_result_new gives zeroed memory to be written in place
 * until the task returns: large results reach a client of the same host without a copy. */
gp_status gp_task_result(gp_task *task, const void *data, size_t bytes, gp_error *err);
gp_status gp_task_result_new(gp_task *task, void **data, size_t bytes, gp_error *err);

/* ---- random numbers: streams that depend on the seed and the iteration (in a block: the index) alone ---- */

uint64_t gp_task_random(gp_task *task);
double gp_task_uniform(gp_task *task); /* [0, 1) */
double gp_task_normal(gp_task *task);  /* mean 0, standard deviation 1 */

/* ---- between the ranks of an spmd block; indices from 1 ----
 * GP_EPEER: a rank died.  GP_ECANCELED: the block is being ended.  GP_ESTATE: not in a block; or the ranks called
 * different operations, or one is waited for that has returned.  GP_EINVAL: no such index. */

enum { GP_TASK_ANY = 0 }; /* any index, in receive and probe */
#define GP_TASK_ANY_TAG UINT32_MAX

/* data may be reused when it returns.  tag: below GP_TASK_ANY_TAG. */
gp_status gp_task_send(gp_task *task, uint32_t to, uint32_t tag, const void *data, size_t bytes,
                       gp_error *err);

typedef struct gp_task_message {
    uint32_t from, tag;
    const void *data; /* of receive: until the next receive or the end of the task */
    size_t bytes;
} gp_task_message;

gp_status gp_task_receive(gp_task *task, uint32_t from, uint32_t tag, gp_task_message *out, gp_error *err);
/* Whether a receive would find one now; does not wait. */
gp_status gp_task_probe(gp_task *task, uint32_t from, uint32_t tag, bool *found, gp_task_message *out,
                        gp_error *err);

gp_status gp_task_barrier(gp_task *task, gp_error *err);
/* The bytes of rank `root` reach all ranks. */
gp_status gp_task_broadcast(gp_task *task, uint32_t root, void *data, size_t bytes, gp_error *err);

/* into := into combined with from; both have the bytes that the call was given.  Must be associative. */
typedef void (*gp_combine_fn)(void *into, const void *from, size_t bytes, void *context);

/* Combine the ranks' data in index order; every rank gets the result in place, the same bits.  combine: one of yours,
 * or gp_combine_sum_f64 and its kin. */
gp_status gp_task_all_reduce(gp_task *task, void *data, size_t bytes, gp_combine_fn combine, void *context,
                             gp_error *err);

/* The ranks' data, which may differ in length, one after the other in index order, on every rank.
 *   parts  may be NULL; else room for gp_task_size() + 1 offsets: the part of index i is [parts[i - 1], parts[i]) */
gp_status gp_task_all_gather(gp_task *task, const void *data, size_t bytes, const void **all,
                             size_t *all_bytes, size_t *parts, gp_error *err);

/* Elementwise over arrays of the type; bytes is a multiple of its size. */
void gp_combine_sum_f64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_sum_f32(void *into, const void *from, size_t bytes, void *context);
void gp_combine_sum_i64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_product_f64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_min_f64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_max_f64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_min_i64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_max_i64(void *into, const void *from, size_t bytes, void *context);

/* ---- what stays on the worker until the lease ends ---- */

/* A value by name, as bytes: the client puts and gets the same (gp_team_put, gp_team_get).  get: NULL when there is
 * none of that name; valid until it is put again or removed. */
const void *gp_task_get(const gp_task *task, const char *name, size_t *bytes);
gp_status gp_task_put(gp_task *task, const char *name, const void *data, size_t bytes, gp_error *err);

/* Something of yours by name: built by the first task that asks, kept for all later ones, and dropped (drop may be
 * NULL) when the lease ends in order.  One name has one build function. */
typedef gp_status (*gp_build_fn)(gp_task *task, void **out, gp_error *err);
gp_status gp_task_cached(gp_task *task, const char *name, gp_build_fn build, void (*drop)(void *value),
                         void **out, gp_error *err);

/* The path under which an attached file (gp_team_attach) can be opened; NULL when none has that name. */
const char *gp_task_file(const gp_task *task, const char *name);

/* ---- to the client, while the task runs ---- */

/* To the data queue of that name.  Waits while the client's side is full, until the task is canceled (GP_ECANCELED). */
gp_status gp_task_queue(gp_task *task, const char *queue, const void *data, size_t bytes, gp_error *err);

/* A line for the client's log callback and the worker's log file; never waits: what the client does not read is dropped
 * and counted. */
void gp_task_log(gp_task *task, const char *format, ...) __attribute__((format(printf, 2, 3)));

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
