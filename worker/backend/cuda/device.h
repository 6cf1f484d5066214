/* device.h -- what a plan needs of a device: memory, one stream of work, graphs of it, and the libraries' convolutions
 * and matrix products.
 *
 * device.c is CUDA; tests/fake/device.c is the host, which runs each kernel's body in a loop, so that everything above
 * this line is tested where there is no device.  All calls are asynchronous and in order unless said otherwise. */
#ifndef GP_CUDA_DEVICE_H
#define GP_CUDA_DEVICE_H

#include <stdbool.h>

#include "common/base/error.h"
#include "worker/backend/cuda/kernel_args.h"

typedef struct gp_device gp_device;
typedef struct gp_device_graph gp_device_graph;
typedef struct gp_device_work gp_device_work; /* a convolution's or a product's plan */

gp_status gp_device_open(gp_device **out, gp_error *err);
void gp_device_close(gp_device *device);

/* Zeros at first.  GP_ENOMEM names what is free. */
gp_status gp_device_alloc(gp_device *device, void **out, size_t bytes, gp_error *err);
void gp_device_free(gp_device *device, void *memory); /* accepts NULL; waits */

/* `from` of an upload may change when the call is back, `to` of a download is there after gp_device_sync(). */
gp_status gp_device_upload(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);
gp_status gp_device_download(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);
gp_status gp_device_copy(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err);
gp_status gp_device_clear(gp_device *device, void *memory, size_t bytes, gp_error *err);
gp_status gp_device_launch(gp_device *device, gp_kernel kernel, const gp_kernel_args *args, uint32_t count,
                           gp_error *err);
gp_status gp_device_sync(gp_device *device, gp_error *err); /* waits */

/* Marks 0 .. GP_DEVICE_MARKS - 1 in the stream, and the time between two that were passed. */
enum { GP_DEVICE_MARKS = 3 };
gp_status gp_device_mark(gp_device *device, uint32_t mark, gp_error *err);
int64_t gp_device_between_ns(gp_device *device, uint32_t from, uint32_t to);

/* What is launched between record and recorded is kept instead of run; replay runs it.  Pointers are those of then. */
gp_status gp_device_record(gp_device *device, gp_error *err);
gp_status gp_device_recorded(gp_device *device, gp_device_graph **out, gp_error *err);
gp_status gp_device_replay(gp_device *device, gp_device_graph *graph, gp_error *err);
void gp_device_graph_free(gp_device_graph *graph);

typedef enum gp_conv_pass { GP_CONV_FORWARD, GP_CONV_DATA, GP_CONV_WEIGHTS } gp_conv_pass;

/* Images x and y of a convolution from x to y, both dense or both packed; weights and their gradient in the order of the
 * images, [O][I][KH][KW] or [O][KH][KW][I], and of their type: cuDNN has no plan for bfloat16 with a gradient in
 * float32 (asked of 9.19 for an H200), so a call's sum is rounded once, and sums over calls are float32. */
typedef struct gp_conv_request {
    gp_conv_pass pass;
    gp_kernel_image x, y;
    uint32_t rows;
    int32_t kernel[2], stride[2], dilation[2], padding[4], groups;
    bool tf32; /* of float32: may round products to TF32 */
} gp_conv_request;

/* GP_EUNSUPPORTED: the library has no plan for it. */
gp_status gp_device_conv_new(gp_device_work **out, gp_device *device, const gp_conv_request *request,
                             size_t *workspace, gp_error *err);
/* The pass's two inputs in the order x, weights, y, and its output. */
gp_status gp_device_conv_run(gp_device *device, gp_device_work *work, const void *first, const void *second,
                             void *out, void *workspace, gp_error *err);

/* out [n][m] = a' b', row by row: y = x W', dx = dy W, dW = dy' x.
 *   transpose_a: a is [k][n] instead of [n][k]; transpose_b: b is [m][k] instead of [k][m] */
typedef struct gp_product_request {
    uint32_t n, m, k;
    bool transpose_a, transpose_b, tf32;
    bool narrow_a, narrow_b, narrow_out;
} gp_product_request;

gp_status gp_device_product_new(gp_device_work **out, gp_device *device, const gp_product_request *request,
                                size_t *workspace, gp_error *err);
gp_status gp_device_product_run(gp_device *device, gp_device_work *work, const void *a, const void *b,
                                void *out, void *workspace, gp_error *err);
void gp_device_work_free(gp_device_work *work);

/* ---- peers: a non-blocking communicator of NCCL (nccl.c) ---- */

enum { GP_DEVICE_GROUP_ID_BYTES = 128 };

typedef bool (*gp_device_stopped_fn)(void *context);

gp_status gp_device_group_id(uint8_t id[GP_DEVICE_GROUP_ID_BYTES], gp_error *err);
/* GP_EUNSUPPORTED: NCCL refuses.  GP_ECANCELED: stopped() said so. */
gp_status gp_device_join(gp_device *device, const uint8_t id[GP_DEVICE_GROUP_ID_BYTES], uint32_t rank,
                         uint32_t world, gp_device_stopped_fn stopped, void *context, gp_error *err);
void gp_device_leave(gp_device *device); /* aborts what is under way */
/* buffer := the sum over the ranks, of float64 or float32 numbers; without a group it is as it was. */
gp_status gp_device_sum(gp_device *device, void *buffer, size_t count, bool wide, gp_error *err);
/* As gp_device_sync(), but a peer that died or a stop ends it: GP_EPEER, GP_ECANCELED, and there is no group any more. */
gp_status gp_device_wait(gp_device *device, gp_error *err);

#endif
