/* The device functions that a plan needs: memory, work lanes, captured graphs, library convolutions
 * and matrix products, and sums over ranks.
 *
 * device.c implements them with CUDA. tests/fake/device.c implements them on the host and runs each
 * kernel body in a loop, so that the code above this interface is tested without a device. All
 * calls are asynchronous and execute in order in the main lane, unless stated otherwise.
 *
 *   main    kernels, libraries, graphs          input   copies of coming samples
 *   peers   sums over the ranks                 output  copies of results
 *
 * Only events order work in different lanes. Work that follows an event starts after all work that
 * was in the event's lane when the event was noted. */
#ifndef GP_CUDA_DEVICE_H
#define GP_CUDA_DEVICE_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/system/timeout.h"
#include "worker/backend/cuda/kernels/kernel_args.h"

/* Opaque; each implementation defines these structs. */
typedef struct gp_device gp_device;
typedef struct gp_device_graph gp_device_graph;
typedef struct gp_device_work gp_device_work; /* convolution or product plan */

/* A lane is a CUDA stream. */
typedef enum gp_lane { GP_LANE_MAIN, GP_LANE_INPUT, GP_LANE_PEERS, GP_LANE_OUTPUT, GP_LANES } gp_lane;

/* Events by number; input and output have one per slot. Noting an event again only extends the
 * waits on it, because a lane executes in order. */
enum { GP_EVENT_FED = 0, GP_EVENT_USED = 2, GP_EVENT_OUT = 4, GP_EVENT_FORK = 6, GP_EVENT_JOIN, GP_EVENTS };

/* Open the device. `directory`: compiled-plan cache for later processes; NULL: no cache. */
gp_status gp_device_open(gp_device **out, const char *directory, gp_error *err);

/* Leave the group and close the device. Memory, graphs and plans must have been freed. Accepts
 * NULL. */
void gp_device_close(gp_device *device);

/* Allocate zeroed device memory. GP_ENOMEM: the message contains the free memory. */
gp_status gp_device_alloc(gp_device *device, void **out, size_t bytes, gp_error *err);
/* Free memory after waiting for all users. Accepts NULL. */
void gp_device_free(gp_device *device, void *memory);
size_t gp_device_available(gp_device *device); /* Return the free device memory in bytes. */
/* Return the device memory that all processes use, in bytes; 0: unknown. */
size_t gp_device_used(gp_device *device);

/* Return the time in milliseconds after which a silent device counts as hung. GRADPOOL_GPU_TIMEOUT
 * sets it, in seconds. */
int64_t gp_device_timeout_ms(const gp_device *device);
/* Return an operation's timeout: GP_DEVICE_FIRST_TIMEOUT times longer for the first one, which
 * loads kernels, and at least GP_DEVICE_LONGER times as long as the longest one took (longest_ns;
 * 0: unknown). */
enum { GP_DEVICE_FIRST_TIMEOUT = 24, GP_DEVICE_LONGER = 10 };
static inline gp_timeout gp_device_timeout(const gp_device *device, bool first, int64_t longest_ns)
{
    const int64_t least_ms = gp_device_timeout_ms(device) * (first ? GP_DEVICE_FIRST_TIMEOUT : 1),
                  longer_ms = GP_DEVICE_LONGER * longest_ns / 1000000;

    return gp_timeout_in(longer_ms > least_ms ? longer_ms : least_ms);
}

/* Allocate memory for sums over the ranks, which NCCL reads and writes without copies. */
gp_status gp_device_alloc_summed(gp_device *device, void **out, size_t bytes, gp_error *err);
/* Free such memory after waiting for all users; no group may use it. Accepts NULL. */
void gp_device_free_summed(gp_device *device, void *memory);

/* Allocate zeroed, pinned host memory. The device copies from it without the host, and kernels
 * access it at the address *there. */
gp_status gp_device_alloc_host(gp_device *device, void **out, void **there, size_t bytes, gp_error *err);
/* Free pinned memory that is no longer in use. Accepts NULL. */
void gp_device_free_host(gp_device *device, void *memory);

/* Page-lock host memory of the caller, so that gp_device_feed() may read it. */
gp_status gp_device_lock(gp_device *device, void *memory, size_t bytes, gp_error *err);
/* Unlock such memory after waiting for the input lane. Accepts NULL. */
void gp_device_unlock(gp_device *device, void *memory);

/* Copy between host and device. An upload waits for the main lane, so `from` may be reused after
 * the call. A download is complete after gp_device_sync(). */
gp_status gp_device_upload(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);
gp_status gp_device_download(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);

/* Upload in the input lane. `from` is pinned memory and is read later. */
gp_status gp_device_feed(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);

/* Download in the output lane. `to` is pinned memory. */
gp_status gp_device_fetch(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);

/* Copy memory on the device. */
gp_status gp_device_copy(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);

/* Set device memory to zero. */
gp_status gp_device_clear(gp_device *device, void *memory, size_t bytes, gp_error *err);

/* Launch `count` work items of a kernel. */
gp_status gp_device_launch(gp_device *device, gp_kernel kernel, const gp_kernel_args *args, uint32_t count,
                           gp_error *err);
gp_status gp_device_sync(gp_device *device, gp_error *err); /* Wait for the main lane. */

/* Wait for a lane. */
gp_status gp_device_wait(gp_device *device, gp_lane lane, gp_error *err);

/* Note an event after the current work of a lane. */
gp_status gp_device_note(gp_device *device, uint32_t event, gp_lane lane, gp_error *err);

/* Make a lane wait for an event. */
gp_status gp_device_follow(gp_device *device, gp_lane lane, uint32_t event, gp_error *err);

/* Make all later work in `lane` wait for the current work in `other`. */
static inline gp_status gp_device_order(gp_device *device, gp_lane lane, uint32_t event, gp_lane other,
                                        gp_error *err)
{
    gp_status status = gp_device_note(device, event, other, err);

    return status == GP_OK ? gp_device_follow(device, lane, event, err) : status;
}

/* Set *passed if all work before the event is done. true: the event was never noted. */
gp_status gp_device_passed(gp_device *device, uint32_t event, bool *passed, gp_error *err);

/* Time marks in the main lane, and the time between two marks that were passed. */
enum { GP_DEVICE_MARKS = 3 };

/* Make marks 0 .. count - 1 available. Marks 0 .. GP_DEVICE_MARKS - 1 always are. */
gp_status gp_device_marks(gp_device *device, uint32_t count, gp_error *err);
gp_status gp_device_mark(gp_device *device, uint32_t mark, gp_error *err);
int64_t gp_device_between_ns(gp_device *device, uint32_t from, uint32_t to);

/* Set *idle if the lane has no work. */
gp_status gp_device_idle(gp_device *device, gp_lane lane, bool *idle, gp_error *err);

/* Record work into a graph rather than executing it, between gp_device_record() and
 * gp_device_recorded(). Includes lanes that follow an event of the main lane and that the main lane
 * follows again; these must be idle before. gp_device_replay() executes the graph in the main lane
 * with the recorded pointers. */
gp_status gp_device_record(gp_device *device, gp_error *err);

/* End a recording and return it as a graph. */
gp_status gp_device_recorded(gp_device *device, gp_device_graph **out, gp_error *err);

/* Execute a graph in the main lane. */
gp_status gp_device_replay(gp_device *device, gp_device_graph *graph, gp_error *err);
void gp_device_graph_free(gp_device_graph *graph);

/* Convolution direction. */
typedef enum gp_conv_pass { GP_CONV_FORWARD, GP_CONV_DATA, GP_CONV_WEIGHTS } gp_conv_pass;

/* Operands of a library step. */
typedef struct gp_device_operands {
    /* convolution: the two pass inputs, in the order x, weights, y; product: a, b */
    const void *first, *second;
    void *out;
    const void *vector; /* bias; for a product with `sums`, the output */
    const void *image;  /* convolution: the image to add, or the relu output y */
    void *mask;         /* product mask bits */
    float *sums;        /* convolution sums: added to, zero before */
} gp_device_operands;

/* A convolution from x to y. Both images are dense or both are packed. Weights and their gradient
 * have the order ([O][I][KH][KW] or [O][KH][KW][I]) and type of the images. cuDNN has no plan for
 * bfloat16 with a float32 gradient (9.19 on H200). The gradient of one call is therefore rounded
 * once; sums over calls are float32.
 *
 * A packed x may have padding channels between pixels: they are zeros with zero weights, which are
 * present in memory. */
typedef struct gp_conv_request {
    gp_conv_pass pass;
    gp_kernel_image x, y;
    uint32_t rows;
    int32_t kernel[2], stride[2], dilation[2], padding[4], groups;
    bool tf32; /* float32 products may be rounded to TF32 */
    /* Operations after the convolution, in this order. FORWARD: add bias[channel] in the images'
     * type; add an image; relu, which keeps NaN. DATA: set dx to 0 where an image shaped as x, the
     * relu output, is not above 0. */
    bool bias, added, relu, masked;
    /* FORWARD without these operations: per y channel, the sum and the sum of squares,
     * [2][channels] */
    bool sums;
} gp_conv_request;

/* Return the x channel count for the library, including padding. */
static inline uint32_t gp_conv_channels(const gp_kernel_image *x)
{
    return x->channel_stride == 1 && x->pixel_stride > x->channels ? x->pixel_stride : x->channels;
}

/* A library algorithm: an engine configuration of cuDNN, or an algorithm of cuBLASLt. The name is
 * unique, and the same in all processes with the same libraries and the same device kind. */
enum { GP_ENGINE_NAME_BYTES = 32 };

typedef struct gp_engine {
    char name[GP_ENGINE_NAME_BYTES];
    int64_t number; /* engine number; configurations of one engine differ in their tiles */
    bool compiled;  /* compiled on request, which takes about a second */
} gp_engine;

enum { GP_DEVICE_LIBRARIES_BYTES = 240 };

/* Describe library versions and device kind on one line. Engine names are valid if this line is the
 * same. */
gp_status gp_device_libraries(gp_device *device, char *text, size_t bytes, gp_error *err);

/* Create a convolution plan.
 *   engine     algorithm name; NULL: the first in the library's own order
 *   workspace  set to the required bytes
 * GP_EUNSUPPORTED: the library has no plan for the request, or lacks this engine. */
gp_status gp_device_conv_new(gp_device_work **out, gp_device *device, const gp_conv_request *request,
                             const char *engine, size_t *workspace, gp_error *err);

/* List the candidate engines in the library's order, and return their number, at most `most`. They
 * may turn out to have no plan. Each gives bitwise identical results in every run. */
uint32_t gp_device_conv_engines(gp_device *device, const gp_conv_request *request, gp_engine *engines,
                                uint32_t most);

/* Execute a convolution. `workspace` has the size reported by gp_device_conv_new(). */
gp_status gp_device_conv_run(gp_device *device, gp_device_work *work, const gp_device_operands *at,
                             void *workspace, gp_error *err);

/* A matrix product out [n][m] = a' b', row by row: y = x W', dx = dy W, dW = dy' x.
 *   transpose_a  a is [k][n] rather than [n][k]
 *   transpose_b  b is [m][k] rather than [k][m] */
typedef struct gp_product_request {
    uint32_t n, m, k;
    bool transpose_a, transpose_b, tf32;
    int32_t narrow_a, narrow_b, narrow_out; /* gp_narrow */
    bool bias;                              /* add vector [m], in the type of out */
    bool relu;                              /* then max(out, 0) */
    /* with relu: write a mask with one bit per out element, set if it is above 0 */
    bool mask_out;
    bool mask_in; /* set out to 0 where the mask bit is not set */
    bool sums;    /* vector [n], float32 like out: receives the sums of a over k */
} gp_product_request;

/* Return the bytes per mask row; out [n][m] has n rows. */
static inline size_t gp_product_mask_row(uint32_t m)
{
    return ((size_t)m + 127) / 128 * 16;
}

/* Create a matrix product plan; parameters and errors as for gp_device_conv_new(). */
gp_status gp_device_product_new(gp_device_work **out, gp_device *device, const gp_product_request *request,
                                const char *engine, size_t *workspace, gp_error *err);

/* List the candidate algorithms of a matrix product, as gp_device_conv_engines() does. */
uint32_t gp_device_product_engines(gp_device *device, const gp_product_request *request, gp_engine *engines,
                                   uint32_t most);

/* Execute a matrix product. */
gp_status gp_device_product_run(gp_device *device, gp_device_work *work, const gp_device_operands *at,
                                void *workspace, gp_error *err);

/* Return the engine name in use. */
const char *gp_device_work_engine(const gp_device_work *work);
void gp_device_work_free(gp_device_work *work);

/* ---- peers: a non-blocking NCCL communicator (nccl.c) ---- */

enum { GP_DEVICE_GROUP_ID_BYTES = 128 };

/* Polled while waiting for peers. GP_OK: keep waiting. Anything else: the wait fails with this
 * error. */
typedef gp_status (*gp_device_check_fn)(void *context, gp_error *err);

/* Create the id of a new group. */
gp_status gp_device_group_id(uint8_t id[GP_DEVICE_GROUP_ID_BYTES], gp_error *err);

/* Join a rank group. GP_EUNSUPPORTED: NCCL refuses. Otherwise the error of check(), or an NCCL
 * error about a peer. */
gp_status gp_device_join(gp_device *device, const uint8_t id[GP_DEVICE_GROUP_ID_BYTES], uint32_t rank,
                         uint32_t world, gp_device_check_fn check, void *context, gp_error *err);

/* Return true if the device belongs to a group. */
bool gp_device_joined(const gp_device *device);

/* Register memory from gp_device_alloc_summed() for faster sums in this group. Never fails. */
void gp_device_register(gp_device *device, void *memory, size_t bytes);

/* Sum a buffer over the ranks, in the peers lane. `wide`: float64, otherwise float32. Results are
 * bitwise identical on all ranks. */
gp_status gp_device_sum(gp_device *device, void *buffer, size_t count, bool wide, gp_error *err);

/* Return a known error of the device or of a peer, without waiting; otherwise GP_OK. Not during
 * recording. */
gp_status gp_device_poll(gp_device *device, gp_error *err);

/* Abort running sums, whose buffers then have undefined contents; later sums fail. Then wait for
 * all lanes. */
gp_status gp_device_abort(gp_device *device, gp_error *err);

/* Leave the group. Waits for peers unless the group was aborted. Graphs with sums must have been
 * freed. */
void gp_device_leave(gp_device *device);

#endif
