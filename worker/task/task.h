/* task.h -- C functions in a shared object that run on a pool's workers.
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
 *             return gp_fail(err, GP_EINVAL, "argument of %zu bytes, expected a double", bytes);
 *         return gp_task_result(task, &y, sizeof(y), err);
 *     }
 *
 * Build it with `gradpool_add_tasks(mytasks mytasks.c)` in CMake, or cc -shared -fPIC -o
 * mytasks.so mytasks.c. The client calls it as "mytasks.so:square" (gradpool.h). The object is
 * sent to each worker once and stays loaded until the lease ends. Then the worker process is
 * replaced, so static variables live as long as the lease.
 *
 * A task runs on the worker's compute thread, one at a time, on the worker's cores and device.
 * It may use any system interface. A crash or an exit() ends only this worker process, which is
 * replaced; the client receives the cause.
 *
 * Threads: call these functions only on the thread that runs the task, except
 * gp_task_canceled(), which any thread may call. Memory: returned pointers are valid until the
 * task returns, unless stated otherwise. */
#ifndef GP_TASK_H
#define GP_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradpool/error.h>
#include <gradpool/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Task ABI version. A worker refuses an object with another version. */
#define GP_TASK_ABI 1

/* Attribute for each task function: exports the function to the worker, under the C name in C++
 * too. */
#ifdef __cplusplus
#define GP_TASK extern "C" __attribute__((visibility("default")))
#else
#define GP_TASK __attribute__((visibility("default")))
#endif

/* object ABI version, defined in each file that includes this header. It is not const, because a
 * const object in C++ has internal linkage. */
#ifndef GP_TASK_NO_ABI
__attribute__((weak, visibility("default"))) extern uint32_t gp_task_object_abi;
__attribute__((weak, visibility("default"))) uint32_t gp_task_object_abi = GP_TASK_ABI;
#endif

#pragma GCC visibility push(default)

typedef struct gp_task gp_task;

/* Task function. Return GP_OK or the result of gp_fail(); the client receives the error message. */
typedef gp_status (*gp_task_fn)(gp_task *task, gp_error *err);

/* ---- identity ---- */

/* Return this rank's index, from 1, and the rank count. In an spmd block, both refer to the block.
 * Elsewhere they are the worker's position in the lease and the leased worker count. */
uint32_t gp_task_index(const gp_task *task);
uint32_t gp_task_size(const gp_task *task);

/* Return the worker's number in the team, 1 .. size, as in `.worker` of a request and in messages.
 * Also valid in a block. */
uint32_t gp_task_worker(const gp_task *task);
int64_t gp_task_iteration(const gp_task *task); /* parfor: value of the range; otherwise 0 */

/* Return the position of a parfor iteration in the range, from 0. */
uint64_t gp_task_position(const gp_task *task);
uint32_t gp_task_attempt(
    const gp_task *task); /* from 1; above 1: an earlier attempt failed, or its worker did */

/* Device of the worker. */
typedef struct gp_task_device {
    bool gpu;
    uint32_t ordinal; /* CUDA ordinal on this machine; CPU: 0 */
    const char *uuid; /* "GPU-..." or "cpu-0-3" */
    const char *name;
    uint32_t cores; /* cores that this worker may use; it is bound to them unless they are shared */
} gp_task_device;

void gp_task_get_device(const gp_task *task, gp_task_device *out);

/* Return whether the task should end: the client canceled it, or another rank failed. If a task has
 * not returned one second after the request, the worker is lost. May be called on any thread. */
bool gp_task_canceled(const gp_task *task);

/* ---- input and output ---- */

/* Return the argument, which is the same for all ranks of a block and all iterations of a loop.
 * It is read-only and 16-byte aligned. NULL with *bytes 0: no argument. */
const void *gp_task_argument(const gp_task *task, size_t *bytes);

/* Return this iteration's input element, in a parfor with sliced input. */
const void *gp_task_input(const gp_task *task, size_t *bytes);

/* Return this iteration's output element, in a parfor with sliced output. It is zero at first;
 * the task writes it. */
void *gp_task_output(const gp_task *task, size_t *bytes);

/* Return the accumulator into which this iteration combines its value, in a parfor with a
 * reduction. It starts as the reduction's identity (custom combine functions: zero bytes). */
void *gp_task_accumulator(const gp_task *task, size_t *bytes);

/* Set the result. A second call replaces the first. gp_task_result() copies the data.
 * gp_task_result_new() returns zeroed memory that the task fills in until it returns: large
 * results reach a client on the same host without a copy. */
gp_status gp_task_result(gp_task *task, const void *data, size_t bytes, gp_error *err);
gp_status gp_task_result_new(gp_task *task, void **data, size_t bytes, gp_error *err);

/* ---- random numbers ----
 *
 * Each stream depends only on the seed and the iteration (in a block: the index). */

/* Return 64 random bits. */
uint64_t gp_task_random(gp_task *task);
double gp_task_uniform(gp_task *task); /* uniform in [0, 1) */
double gp_task_normal(gp_task *task);  /* normal with mean 0 and standard deviation 1 */

/* ---- communication between the ranks of an spmd block; indices from 1 ----
 *
 *   GP_EPEER      a rank failed
 *   GP_ECANCELED  the block is being ended
 *   GP_ESTATE     not in a block; or the ranks called different operations, or a required rank
 *                 has returned
 *   GP_EINVAL     invalid index */

enum { GP_TASK_ANY = 0 }; /* any index, for receive and probe */
#define GP_TASK_ANY_TAG UINT32_MAX

/* Send a message of at most 256 MiB. `data` may be reused after the return. tag: below
 * GP_TASK_ANY_TAG. Ranks may send to each other first and receive afterwards while each has at most
 * 1 GiB of unreceived messages. Beyond that, the sends of these ranks fail with GP_ESTATE. */
gp_status gp_task_send(gp_task *task, uint32_t to, uint32_t tag, const void *data, size_t bytes,
                       gp_error *err);

/* Message between ranks. */
typedef struct gp_task_message {
    uint32_t from, tag;
    const void *data; /* after receive: valid until the next receive or until the task ends */
    size_t bytes;
} gp_task_message;

/* Receive the oldest message that matches `from` (or GP_TASK_ANY) and `tag` (or
 * GP_TASK_ANY_TAG). Waits until one arrives. */
gp_status gp_task_receive(gp_task *task, uint32_t from, uint32_t tag, gp_task_message *out, gp_error *err);

/* Return in *found whether a receive would find a message now. Does not wait. */
gp_status gp_task_probe(gp_task *task, uint32_t from, uint32_t tag, bool *found, gp_task_message *out,
                        gp_error *err);

/* Wait until all ranks of the block have called this function. */
gp_status gp_task_barrier(gp_task *task, gp_error *err);

/* Copy the bytes of rank `root` to all ranks. */
gp_status gp_task_broadcast(gp_task *task, uint32_t root, void *data, size_t bytes, gp_error *err);

/* Combine: into := into combined with from. Both have the size that was passed to the operation.
 * Must be associative. */
typedef void (*gp_combine_fn)(void *into, const void *from, size_t bytes, void *context);

/* Combine all ranks' data in index order. Every rank gets the result in place, bitwise identical.
 * combine: a custom function, or gp_combine_sum_f64() and similar. */
gp_status gp_task_all_reduce(gp_task *task, void *data, size_t bytes, gp_combine_fn combine, void *context,
                             gp_error *err);

/* Concatenate all ranks' data in index order, on every rank. The lengths may differ.
 *   parts  NULL, or an array of gp_task_size() + 1 offsets; index i has [parts[i - 1],
 *          parts[i]) */
gp_status gp_task_all_gather(gp_task *task, const void *data, size_t bytes, const void **all,
                             size_t *all_bytes, size_t *parts, gp_error *err);

/* Combine arrays elementwise. `bytes` is a multiple of the element size. */
void gp_combine_sum_f64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_sum_f32(void *into, const void *from, size_t bytes, void *context);
void gp_combine_sum_i64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_product_f64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_min_f64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_max_f64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_min_i64(void *into, const void *from, size_t bytes, void *context);
void gp_combine_max_i64(void *into, const void *from, size_t bytes, void *context);

/* ---- data kept on the worker until the lease ends ---- */

/* Get or put a named value as bytes; the client accesses the same values (gp_team_put,
 * gp_team_get). get: NULL: no such value; the pointer is valid until the value is replaced or
 * removed. */
const void *gp_task_get(const gp_task *task, const char *name, size_t *bytes);
gp_status gp_task_put(gp_task *task, const char *name, const void *data, size_t bytes, gp_error *err);

/* Get or put a named value as a typed array: the values of gp_team_put_tensor() and
 * gp_team_scatter_tensor(). The data of `out` are valid until the value is replaced or removed.
 *   dtype  the element type that the task expects; 0: any
 * GP_ENOENT: no such value. GP_EINVAL: the value is not a tensor, or has another element type. */
gp_status gp_task_get_tensor(const gp_task *task, const char *name, gp_dtype dtype, gp_tensor *out,
                             gp_error *err);
gp_status gp_task_put_tensor(gp_task *task, const char *name, const gp_tensor *tensor, gp_error *err);

/* Return a named object that is built once: by the first task that requests it. It is kept for
 * later tasks and dropped (drop may be NULL) when the lease ends normally. Use one build
 * function per name. */
typedef gp_status (*gp_build_fn)(gp_task *task, void **out, gp_error *err);
gp_status gp_task_cached(gp_task *task, const char *name, gp_build_fn build, void (*drop)(void *value),
                         void **out, gp_error *err);

/* Return the path under which an attached file (gp_team_attach) can be opened. NULL: no such
 * file. */
const char *gp_task_file(const gp_task *task, const char *name);

/* ---- messages to the client while the task runs ---- */

/* Send an item to a named data queue. Waits while the client's queue is full. GP_ECANCELED: the
 * task was canceled. */
gp_status gp_task_queue(gp_task *task, const char *queue, const void *data, size_t bytes, gp_error *err);

/* Send a line to the client's log callback and to the worker log. Never waits: lines that the
 * client does not read in time are dropped and counted. */
void gp_task_log(gp_task *task, const char *format, ...) __attribute__((format(printf, 2, 3)));

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
