/* device.h -- what a plan needs of a device: memory, lanes of work, graphs of it, the libraries' convolutions and matrix
 * products, and sums with its peers.
 *
 * device.c is CUDA; tests/fake/device.c is the host, which runs each kernel's body in a loop, so that everything above
 * this line is tested where there is no device.  All calls are asynchronous, and in order in the main lane, unless said
 * otherwise.
 *
 *   main    kernels, libraries, graphs          input   copies of samples to come
 *   peers   sums over the ranks                 output  copies of answers
 *
 * What lies in two lanes is ordered by events only: what follows an event begins when all is done that stood in the
 * event's lane when it was noted. */
#ifndef GP_CUDA_DEVICE_H
#define GP_CUDA_DEVICE_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/system/timeout.h"
#include "worker/backend/cuda/kernels/kernel_args.h"

typedef struct gp_device gp_device;
typedef struct gp_device_graph gp_device_graph;
typedef struct gp_device_work gp_device_work; /* a convolution's or a product's plan */

typedef enum gp_lane { GP_LANE_MAIN, GP_LANE_INPUT, GP_LANE_PEERS, GP_LANE_OUTPUT, GP_LANES } gp_lane;

/* By number; a pair for the slots of input and output.  Whoever notes one again makes the others wait for longer, not less: a lane
 * is in order. */
enum { GP_EVENT_FED = 0, GP_EVENT_USED = 2, GP_EVENT_OUT = 4, GP_EVENT_FORK = 6, GP_EVENT_JOIN, GP_EVENTS };

/* directory: of compiled plans, for the next process; NULL: none are kept. */
gp_status gp_device_open(gp_device **out, const char *directory, gp_error *err);
void gp_device_close(gp_device *device);

/* Zeros at first.  GP_ENOMEM names what is free. */
gp_status gp_device_alloc(gp_device *device, void **out, size_t bytes, gp_error *err);
void gp_device_free(gp_device *device, void *memory); /* accepts NULL; waits */
size_t gp_device_available(gp_device *device);        /* bytes that are free now */
/* How long it may be silent where something should happen at once; GRADPOOL_GPU_PATIENCE, in seconds. */
int64_t gp_device_patience_ms(const gp_device *device);
/* Return the timeout of an operation: GP_DEVICE_FIRST_PATIENCE times longer for the first one,
 * which loads kernels, and at least GP_DEVICE_LONGER times as long as the longest one took
 * (longest_ns; 0: unknown). */
enum { GP_DEVICE_FIRST_PATIENCE = 24, GP_DEVICE_LONGER = 10 };
static inline gp_timeout gp_device_timeout(const gp_device *device, bool first, int64_t longest_ns)
{
    const int64_t least_ms = gp_device_patience_ms(device) * (first ? GP_DEVICE_FIRST_PATIENCE : 1),
                  longer_ms = GP_DEVICE_LONGER * longest_ns / 1000000;

    return gp_timeout_in(longer_ms > least_ms ? longer_ms : least_ms);
}
/* The same, where sums over the ranks are made: NCCL reads and writes it without copies. */
gp_status gp_device_alloc_summed(gp_device *device, void **out, size_t bytes, gp_error *err);
void gp_device_free_summed(gp_device *device, void *memory); /* accepts NULL; waits; out of any group */
/* Memory of the host that the device copies from by itself, and that kernels may read and write at the address *there;
 * zeros at first. */
gp_status gp_device_alloc_host(gp_device *device, void **out, void **there, size_t bytes, gp_error *err);
void gp_device_free_host(gp_device *device, void *memory); /* accepts NULL; nothing may use it any more */

/* An upload waits for the main lane: `from` may change when it is back.  `to` of a download is there after gp_device_sync(). */
gp_status gp_device_upload(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);
gp_status gp_device_download(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);
/* The same in the input lane; `from` is of gp_device_alloc_host() and is read later. */
gp_status gp_device_feed(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);
/* In the output lane; `to` is of gp_device_alloc_host(). */
gp_status gp_device_fetch(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);
gp_status gp_device_copy(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);
gp_status gp_device_clear(gp_device *device, void *memory, size_t bytes, gp_error *err);
gp_status gp_device_launch(gp_device *device, gp_kernel kernel, const gp_kernel_args *args, uint32_t count,
                           gp_error *err);
gp_status gp_device_sync(gp_device *device, gp_error *err); /* waits for the main lane */
gp_status gp_device_wait(gp_device *device, gp_lane lane, gp_error *err);

gp_status gp_device_note(gp_device *device, uint32_t event, gp_lane lane, gp_error *err);
gp_status gp_device_follow(gp_device *device, gp_lane lane, uint32_t event, gp_error *err);
/* Let all that comes into `lane` later wait for what is in `other` now. */
static inline gp_status gp_device_order(gp_device *device, gp_lane lane, uint32_t event, gp_lane other,
                                        gp_error *err)
{
    gp_status status = gp_device_note(device, event, other, err);

    return status == GP_OK ? gp_device_follow(device, lane, event, err) : status;
}
/* Whether all before the event is done; true before its first note. */
gp_status gp_device_passed(gp_device *device, uint32_t event, bool *passed, gp_error *err);

/* Marks 0 .. GP_DEVICE_MARKS - 1 in the stream, and the time between two that were passed. */
enum { GP_DEVICE_MARKS = 3 };
gp_status gp_device_mark(gp_device *device, uint32_t mark, gp_error *err);
int64_t gp_device_between_ns(gp_device *device, uint32_t from, uint32_t to);

gp_status gp_device_idle(gp_device *device, gp_lane lane, bool *idle, gp_error *err); /* nothing is in it */

/* What is launched between record and recorded is kept instead of run, also in lanes that follow an event of the main one
 * and that it follows again, which are idle before; replay runs it in the main lane.  Pointers are those of then. */
gp_status gp_device_record(gp_device *device, gp_error *err);
gp_status gp_device_recorded(gp_device *device, gp_device_graph **out, gp_error *err);
gp_status gp_device_replay(gp_device *device, gp_device_graph *graph, gp_error *err);
void gp_device_graph_free(gp_device_graph *graph);

typedef enum gp_conv_pass { GP_CONV_FORWARD, GP_CONV_DATA, GP_CONV_WEIGHTS } gp_conv_pass;

/* Where a library's step reads and writes. */
typedef struct gp_device_operands {
    const void *first,
        *second; /* of a convolution's pass the two inputs in the order x, weights, y; of a product a, b */
    void *out;
    const void *vector; /* the bias; of a product with `sums` written */
    const void *image;  /* of a convolution: what is added, or the y of a ReLU */
    void *mask;         /* of a product */
    float *sums;        /* of a convolution, written or added to: zeros before */
} gp_device_operands;

/* Images x and y of a convolution from x to y, both dense or both packed; weights and their gradient in the order of the
 * images, [O][I][KH][KW] or [O][KH][KW][I], and of their type: cuDNN has no plan for bfloat16 with a gradient in
 * float32 (asked of 9.19 for an H200), so a call's sum is rounded once, and sums over calls are float32.
 * Channels of a packed x may be fewer than its pixels lie apart: those between are zeros, and so are their weights, which
 * are there. */
typedef struct gp_conv_request {
    gp_conv_pass pass;
    gp_kernel_image x, y;
    uint32_t rows;
    int32_t kernel[2], stride[2], dilation[2], padding[4], groups;
    bool tf32; /* of float32: may round products to TF32 */
    /* What follows, in this order.  FORWARD: + bias[channel], of the images' type; + an image; max(., 0), or a NaN.
     * DATA: 0 where an image as x, the output of a ReLU, is not above 0. */
    bool bias, added, relu, masked;
    bool
        sums; /* FORWARD, with none of these: of each channel of y the sum and that of squares, [2][channels] */
} gp_conv_request;

/* Those of x for the library. */
static inline uint32_t gp_conv_channels(const gp_kernel_image *x)
{
    return x->channel_stride == 1 && x->pixel_stride > x->channels ? x->pixel_stride : x->channels;
}

/* A way in which a library computes something, by a name that is the same in all processes with the same libraries on the
 * same kind of device. */
enum { GP_ENGINE_NAME_BYTES = 32 };

typedef struct gp_engine {
    char name[GP_ENGINE_NAME_BYTES];
    bool compiled; /* when it is asked for, which takes a second or so */
} gp_engine;

enum { GP_DEVICE_LIBRARIES_BYTES = 240 };

/* The versions of the libraries and the kind of device, on one line: engines are worth naming where it is the same. */
gp_status gp_device_libraries(gp_device *device, char *text, size_t bytes, gp_error *err);

/* engine: a name, or NULL: the first of the library's own order.  GP_EUNSUPPORTED: the library has no plan for it, or
 * not that engine. */
gp_status gp_device_conv_new(gp_device_work **out, gp_device *device, const gp_conv_request *request,
                             const char *engine, size_t *workspace, gp_error *err);
/* What may be asked for, in the library's order: whether they have a plan is not known yet.  All give equal bits in each
 * run.  Returns how many there are, `most` at the most. */
uint32_t gp_device_conv_engines(gp_device *device, const gp_conv_request *request, gp_engine *engines,
                                uint32_t most);
gp_status gp_device_conv_run(gp_device *device, gp_device_work *work, const gp_device_operands *at,
                             void *workspace, gp_error *err);

/* out [n][m] = a' b', row by row: y = x W', dx = dy W, dW = dy' x.
 *   transpose_a: a is [k][n] instead of [n][k]; transpose_b: b is [m][k] instead of [k][m] */
typedef struct gp_product_request {
    uint32_t n, m, k;
    bool transpose_a, transpose_b, tf32;
    int32_t narrow_a, narrow_b, narrow_out; /* gp_narrow */
    bool bias;                              /* out += vector [m], of out's type */
    bool relu;                              /* then max(out, 0) */
    bool mask_out; /* with relu: mask is written, a bit for each number of out, set where it is above 0 */
    bool mask_in;  /* out = 0 where the mask has no bit */
    bool sums;     /* vector [n], float32 as out: the sums of a over k */
} gp_product_request;

/* Bytes of a mask's row: of out [n][m] it has n of them. */
static inline size_t gp_product_mask_row(uint32_t m)
{
    return ((size_t)m + 127) / 128 * 16;
}

gp_status gp_device_product_new(gp_device_work **out, gp_device *device, const gp_product_request *request,
                                const char *engine, size_t *workspace, gp_error *err);
uint32_t gp_device_product_engines(gp_device *device, const gp_product_request *request, gp_engine *engines,
                                   uint32_t most);
gp_status gp_device_product_run(gp_device *device, gp_device_work *work, const gp_device_operands *at,
                                void *workspace, gp_error *err);
const char *gp_device_work_engine(const gp_device_work *work);
void gp_device_work_free(gp_device_work *work);

/* ---- peers: a non-blocking communicator of NCCL (nccl.c) ---- */

enum { GP_DEVICE_GROUP_ID_BYTES = 128 };

/* Asked while peers are waited for: GP_OK goes on waiting, all else ends it with that. */
typedef gp_status (*gp_device_check_fn)(void *context, gp_error *err);

gp_status gp_device_group_id(uint8_t id[GP_DEVICE_GROUP_ID_BYTES], gp_error *err);
/* GP_EUNSUPPORTED: NCCL refuses.  Else what check() said, or NCCL of a peer. */
gp_status gp_device_join(gp_device *device, const uint8_t id[GP_DEVICE_GROUP_ID_BYTES], uint32_t rank,
                         uint32_t world, gp_device_check_fn check, void *context, gp_error *err);
bool gp_device_joined(const gp_device *device);
/* Memory of gp_device_alloc_summed() is going to be summed in this group; only faster for it, and never an error. */
void gp_device_register(gp_device *device, void *memory, size_t bytes);
/* In the peers' lane: buffer := the sum over the ranks, of float64 or float32 numbers, the same bits on all of them. */
gp_status gp_device_sum(gp_device *device, void *buffer, size_t count, bool wide, gp_error *err);
/* Does not wait: what is known to be wrong with the device or with a peer, else GP_OK.  Not while recording. */
gp_status gp_device_look(gp_device *device, gp_error *err);
/* Sums that are under way end soon, and with anything in their buffers; later ones fail.  Then all lanes are waited for. */
gp_status gp_device_abort(gp_device *device, gp_error *err);
/* The end of the group, which waits for peers unless it was aborted.  Graphs with sums must be gone. */
void gp_device_leave(gp_device *device);

#endif
