/* device.c: the host as a GPU, so that plans for GPUs can be tested without one.
 *
 * Memory comes from malloc(), tests/fake/simt runs the kernels, and a graph is a list of launches.
 * All code above worker/backend/cuda/libraries/device.h is the plugin's own. Library convolutions
 * and products are plain loops over weights in cuDNN's layout, which tests packing and
 * unpacking. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "tests/fake/device_hooks.h"
#include "tests/fake/simt/simt.h"
#include "worker/backend/cuda/kernels/bodies.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/libraries/device.h"

typedef struct launch {
    gp_kernel kernel;
    gp_kernel_args args;
    uint32_t count;
    gp_device_work *work;
    gp_device_operands at;
} launch;

struct gp_device_graph {
    launch *launches;
    uint32_t count, capacity;
};

struct gp_device {
    gp_device_graph *recording;
};

struct gp_device_work {
    bool is_conv;
    gp_conv_request conv;
    gp_product_request product;
};

gp_status gp_device_open(gp_device **out, const char *directory, gp_error *err)
{
    (void)directory;
    *out = gp_calloc(1, sizeof(**out));
    return *out == NULL ? gp_fail(err, GP_ENOMEM, "no memory for a device") : GP_OK;
}

void gp_device_close(gp_device *device)
{
    gp_free(device);
}

gp_status gp_device_alloc(gp_device *device, void **out, size_t bytes, gp_error *err)
{
    (void)device;
    *out = gp_aligned_calloc(64, bytes);
    if (*out == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu bytes on the device", bytes);

    /* unlike a real device: makes reads of uninitialized memory visible */
    memset(*out, 0x7f, bytes);
    return GP_OK;
}

void gp_device_free(gp_device *device, void *memory)
{
    (void)device;
    gp_free(memory);
}

int64_t gp_device_timeout_ms(const gp_device *device)
{
    (void)device;
    return 5000;
}

size_t gp_device_available(gp_device *device)
{
    (void)device;
    return (size_t)1 << 30;
}

size_t gp_device_used(gp_device *device)
{
    (void)device;
    return (size_t)1 << 20;
}

gp_status gp_device_alloc_summed(gp_device *device, void **out, size_t bytes, gp_error *err)
{
    return gp_device_alloc(device, out, bytes, err);
}

void gp_device_free_summed(gp_device *device, void *memory)
{
    gp_device_free(device, memory);
}

gp_status gp_device_alloc_host(gp_device *device, void **out, void **there, size_t bytes, gp_error *err)
{
    (void)device;
    *out = *there = gp_aligned_calloc(64, bytes);
    return *out == NULL ? gp_fail(err, GP_ENOMEM, "no memory for %zu bytes", bytes) : GP_OK;
}

void gp_device_free_host(gp_device *device, void *memory)
{
    (void)device;
    gp_free(memory);
}

gp_status gp_device_copy(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    (void)err;
    assert(device->recording == NULL);
    memcpy(to, from, bytes);
    return GP_OK;
}

gp_status gp_device_upload(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    return gp_device_copy(device, to, from, bytes, err);
}

gp_status gp_device_download(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    return gp_device_copy(device, to, from, bytes, err);
}

gp_status gp_device_lock(gp_device *device, void *memory, size_t bytes, gp_error *err)
{
    (void)device;
    (void)memory;
    (void)bytes;
    (void)err;
    return GP_OK;
}

void gp_device_unlock(gp_device *device, void *memory)
{
    (void)device;
    (void)memory;
}

gp_status gp_device_feed(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    return gp_device_copy(device, to, from, bytes, err);
}

gp_status gp_device_fetch(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    return gp_device_copy(device, to, from, bytes, err);
}

/* Lanes and events have no effect: each call completes before it returns. */
gp_status gp_device_note(gp_device *device, uint32_t event, gp_lane lane, gp_error *err)
{
    (void)device;
    (void)err;
    assert(event < GP_EVENTS && lane < GP_LANES);
    return GP_OK;
}

gp_status gp_device_follow(gp_device *device, gp_lane lane, uint32_t event, gp_error *err)
{
    return gp_device_note(device, event, lane, err);
}

gp_status gp_device_passed(gp_device *device, uint32_t event, bool *passed, gp_error *err)
{
    *passed = true;
    return gp_device_note(device, event, GP_LANE_MAIN, err);
}

gp_status gp_device_idle(gp_device *device, gp_lane lane, bool *idle, gp_error *err)
{
    *idle = true;
    return gp_device_note(device, 0, lane, err);
}

gp_status gp_device_clear(gp_device *device, void *memory, size_t bytes, gp_error *err)
{
    (void)err;
    assert(device->recording == NULL);
    memset(memory, 0, bytes);
    return GP_OK;
}

gp_status gp_device_sync(gp_device *device, gp_error *err)
{
    (void)err;
    assert(device->recording == NULL);
    return GP_OK;
}

gp_status gp_device_wait(gp_device *device, gp_lane lane, gp_error *err)
{
    (void)lane;
    return gp_device_sync(device, err);
}

gp_status gp_device_marks(gp_device *device, uint32_t count, gp_error *err)
{
    (void)device;
    (void)count;
    (void)err;
    return GP_OK;
}

gp_status gp_device_mark(gp_device *device, uint32_t mark, gp_error *err)
{
    (void)device;
    (void)mark;
    (void)err;
    return GP_OK;
}

int64_t gp_device_between_ns(gp_device *device, uint32_t from, uint32_t to)
{
    (void)device;
    return to - from;
}

/* ---- launches ---- */

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream)
{
    const simt_launch l = simt_launch_of(kernel, grid.x, block.x, args);

    (void)stream;
    assert(shared == 0);
    simt_run(&l);
    return cudaSuccess;
}

static void kernel_run(gp_kernel kernel, const gp_kernel_args *args, uint32_t count)
{
    gp_kernel_launch(kernel, args, count, NULL);
}

/* Copy weights between the library layout and the dense float32 layout [O][I][P] of our kernels.
 * Stored inputs without a channel are zeros. */
static void conv_weights_copy(const gp_conv_request *r, float *plain, void *library, bool back)
{
    gp_kernel_image image = { .data = library, .narrow = r->x.narrow };
    uint32_t groups = (uint32_t)r->groups, taps = (uint32_t)(r->kernel[0] * r->kernel[1]);
    uint32_t inputs = r->x.channels / groups, stored = gp_conv_channels(&r->x) / groups;

    for (uint32_t o = 0; o < r->y.channels; o++)
        for (uint32_t c = 0; c < stored; c++)
            for (uint32_t p = 0; p < taps; p++) {
                size_t at = r->x.channel_stride == 1 ? ((size_t)o * taps + p) * stored + c
                                                     : ((size_t)o * stored + c) * taps + p;
                size_t mine = ((size_t)o * inputs + c) * taps + p;

                /* arbitrary: never read */
                if (back)
                    image_put(&image, at, c < inputs ? plain[mine] : 77.0f);
                else if (c < inputs)
                    plain[mine] = image_get(&image, at);
                else
                    assert(image_get(&image, at) == 0.0f);
            }
}

/* Run a convolution with everything fused to it. The result is rounded once, at the end. */
static void conv_run(const gp_conv_request *r, const gp_device_operands *at)
{
    const gp_kernel_call call = { .count = r->rows, .first = 1 };
    gp_kernel_args args = { .call = &call, .groups = r->groups, .chunks = 1, .relu = r->relu };
    bool forward = r->pass == GP_CONV_FORWARD, data = r->pass == GP_CONV_DATA;
    uint64_t count = (uint64_t)r->y.channels * (r->x.channels / (uint32_t)r->groups) *
                     (uint32_t)(r->kernel[0] * r->kernel[1]);
    float *plain = calloc(count, sizeof(*plain)), *bias = calloc(r->y.channels, sizeof(*bias));
    gp_kernel_image vector = { .data = (void *)(uintptr_t)at->vector, .narrow = r->x.narrow };

    memcpy(args.kernel, r->kernel, sizeof(args.kernel));
    memcpy(args.stride, r->stride, sizeof(args.stride));
    memcpy(args.dilation, r->dilation, sizeof(args.dilation));
    memcpy(args.padding, r->padding, sizeof(args.padding));
    args.x[0] = data ? r->y : r->x;
    args.x[0].data = (void *)(uintptr_t)(data ? at->second : at->first);
    args.y[0] = forward ? r->y : r->x;
    args.y[0].data = at->out;
    args.f[0] = plain;
    if (r->added || r->masked) {
        args.x[7] = args.y[0];
        args.x[7].data = (void *)(uintptr_t)at->image;
    }
    if (r->bias) {
        for (uint32_t c = 0; c < r->y.channels; c++)
            bias[c] = image_get(&vector, c);
        args.f[1] = bias;
    }
    if (r->pass == GP_CONV_WEIGHTS) {
        args.x[1] = r->y;
        args.x[1].data = (void *)(uintptr_t)at->second;
        args.count = count;
        args.f[1] = plain;
        kernel_run(GP_KERNEL_conv_weights, &args, (uint32_t)count);
        conv_weights_copy(r, plain, at->out, true);
    } else {
        conv_weights_copy(r, plain, (void *)(uintptr_t)(forward ? at->second : at->first), false);
        kernel_run(forward ? GP_KERNEL_conv : GP_KERNEL_conv_data, &args, args.y[0].sample * r->rows);
    }
    for (uint32_t i = 0; r->sums && i < r->y.channels * r->rows * r->y.pixels; i++) {
        const uint32_t c = i % r->y.channels, unit = i / r->y.channels;
        const float value =
            image_get(&args.y[0], image_at(&args.y[0], unit / r->y.pixels, c, unit % r->y.pixels));

        assert(unit != 0 || (at->sums[c] == 0.0f && at->sums[r->y.channels + c] == 0.0f));
        at->sums[c] += value;
        at->sums[r->y.channels + c] += value * value;
    }
    free(bias);
    free(plain);
}

/* Add up each vector of the left operand along k. */
static void product_sums(const gp_product_request *r, const gp_kernel_image *left, float *sums)
{
    for (size_t i = 0; i < r->n; i++) {
        double sum = 0.0;

        for (size_t k = 0; k < r->k; k++)
            sum += (double)image_get(left, r->transpose_a ? k * r->n + i : i * r->k + k);
        sums[i] = (float)sum;
    }
}

static void product_run(const gp_product_request *r, const gp_device_operands *at)
{
    gp_kernel_image left = { .data = (void *)(uintptr_t)at->first, .narrow = r->narrow_a };
    gp_kernel_image right = { .data = (void *)(uintptr_t)at->second, .narrow = r->narrow_b };
    gp_kernel_image vector = { .data = (void *)(uintptr_t)at->vector, .narrow = r->narrow_out };
    gp_kernel_image to = { .data = at->out, .narrow = r->narrow_out };

    if (r->mask_out)
        memset(at->mask, 0, gp_product_mask_row(r->m) * r->n);
    for (size_t i = 0; i < r->n; i++)
        for (size_t j = 0; j < r->m; j++) {
            uint8_t *mask = (uint8_t *)at->mask + i * gp_product_mask_row(r->m) + j / 8;
            double sum = r->bias ? (double)image_get(&vector, j) : 0.0;

            for (size_t k = 0; k < r->k; k++)
                sum += (double)image_get(&left, r->transpose_a ? k * r->n + i : i * r->k + k) *
                       (double)image_get(&right, r->transpose_b ? j * r->k + k : k * r->m + j);
            if (r->relu && sum <= 0.0)
                sum = 0.0;
            if (r->mask_out && sum > 0.0)
                *mask |= (uint8_t)(1u << j % 8);
            if (r->mask_in && (*mask >> j % 8 & 1) == 0)
                sum = 0.0;
            image_put(&to, i * r->m + j, (float)sum);
        }
    if (r->sums)
        product_sums(r, &left, (float *)(uintptr_t)at->vector);
}

static void launch_run(const launch *at)
{
    if (at->work == NULL)
        kernel_run(at->kernel, &at->args, at->count);
    else if (at->work->is_conv)
        conv_run(&at->work->conv, &at->at);
    else
        product_run(&at->work->product, &at->at);
}

static gp_status launch_add(gp_device *device, const launch *at, gp_error *err)
{
    gp_device_graph *graph = device->recording;

    if (graph == NULL) {
        launch_run(at);
        return GP_OK;
    }
    if (graph->count == graph->capacity) {
        uint32_t capacity = graph->capacity == 0 ? 64 : 2 * graph->capacity;
        launch *grown = gp_realloc_array(graph->launches, capacity, sizeof(*grown));

        if (grown == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a graph");
        graph->launches = grown;
        graph->capacity = capacity;
    }
    graph->launches[graph->count++] = *at;
    return GP_OK;
}

gp_status gp_device_launch(gp_device *device, gp_kernel kernel, const gp_kernel_args *args, uint32_t count,
                           gp_error *err)
{
    return launch_add(device, &(launch){ .kernel = kernel, .args = *args, .count = count }, err);
}

/* ---- graphs ---- */

gp_status gp_device_record(gp_device *device, gp_error *err)
{
    assert(device->recording == NULL);
    device->recording = gp_calloc(1, sizeof(*device->recording));
    return device->recording == NULL ? gp_fail(err, GP_ENOMEM, "no memory for a graph") : GP_OK;
}

gp_status gp_device_recorded(gp_device *device, gp_device_graph **out, gp_error *err)
{
    (void)err;
    *out = device->recording;
    device->recording = NULL;
    return GP_OK;
}

gp_status gp_device_replay(gp_device *device, gp_device_graph *graph, gp_error *err)
{
    (void)err;
    assert(device->recording == NULL);
    for (uint32_t i = 0; i < graph->count; i++)
        launch_run(&graph->launches[i]);
    return GP_OK;
}

void gp_device_graph_free(gp_device_graph *graph)
{
    if (graph == NULL)
        return;
    gp_free(graph->launches);
    gp_free(graph);
}

/* ---- libraries ---- */

gp_status gp_device_libraries(gp_device *device, char *text, size_t bytes, gp_error *err)
{
    (void)device;
    (void)err;
    snprintf(text, bytes, "loops of this host");
    return GP_OK;
}

/* Name of the only implementation. */
static const char engine_name[] = "loop";

uint32_t gp_device_conv_engines(gp_device *device, const gp_conv_request *request, gp_engine *engines,
                                uint32_t most)
{
    (void)device;
    (void)request;
    if (most == 0)
        return 0;
    engines[0] = (gp_engine){ .compiled = false };
    snprintf(engines[0].name, sizeof(engines[0].name), "%s", engine_name);
    return 1;
}

uint32_t gp_device_product_engines(gp_device *device, const gp_product_request *request, gp_engine *engines,
                                   uint32_t most)
{
    (void)request;
    return gp_device_conv_engines(device, NULL, engines, most);
}

const char *gp_device_work_engine(const gp_device_work *work)
{
    (void)work;
    return engine_name;
}

/* Refuse weight gradients of dilated convolutions, and convolutions with an added value and more
 * than 6 output channels, so that tests cover the fallbacks too. */
static gp_status conv_ask(const gp_conv_request *request, gp_error *err)
{
    if (gp_fake_conv_ask != NULL)
        return gp_fake_conv_ask(request, err);
    if (request->padding[0] != request->padding[2] || request->padding[1] != request->padding[3] ||
        (request->pass == GP_CONV_WEIGHTS && request->dilation[0] > 1) ||
        (request->added && request->y.channels > 6))
        return gp_fail(err, GP_EUNSUPPORTED, "no such convolution");
    return GP_OK;
}

gp_status gp_device_conv_new(gp_device_work **out, gp_device *device, const gp_conv_request *request,
                             const char *engine, size_t *workspace, gp_error *err)
{
    gp_status status;

    (void)device;
    if (engine != NULL && strcmp(engine, engine_name) != 0)
        return gp_fail(err, GP_EUNSUPPORTED, "no such engine");
    status = conv_ask(request, err);
    if (status != GP_OK)
        return status;
    *out = gp_calloc(1, sizeof(**out));
    if (*out == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a convolution");
    (*out)->is_conv = true;
    (*out)->conv = *request;
    *workspace = 1000;
    return GP_OK;
}

gp_status gp_device_conv_run(gp_device *device, gp_device_work *work, const gp_device_operands *at,
                             void *workspace, gp_error *err)
{
    memset(workspace, 0x55, 1000);
    return launch_add(device, &(launch){ .work = work, .at = *at }, err);
}

gp_status gp_device_product_new(gp_device_work **out, gp_device *device, const gp_product_request *request,
                                const char *engine, size_t *workspace, gp_error *err)
{
    (void)device;
    if ((engine != NULL && strcmp(engine, engine_name) != 0) || request->narrow_a != request->narrow_b ||
        (request->sums && request->n == 5)) /* refused to cover the fallback */
        return gp_fail(err, GP_EUNSUPPORTED, "no such product");
    *out = gp_calloc(1, sizeof(**out));
    if (*out == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a product");
    (*out)->product = *request;
    *workspace = 0;
    return GP_OK;
}

gp_status gp_device_product_run(gp_device *device, gp_device_work *work, const gp_device_operands *at,
                                void *workspace, gp_error *err)
{
    (void)workspace;
    return launch_add(device, &(launch){ .work = work, .at = *at }, err);
}

void gp_device_work_free(gp_device_work *work)
{
    gp_free(work);
}

/* ---- peers: not supported ---- */

gp_status gp_device_group_id(uint8_t id[GP_DEVICE_GROUP_ID_BYTES], gp_error *err)
{
    (void)err;
    memset(id, 7, GP_DEVICE_GROUP_ID_BYTES);
    return GP_OK;
}

gp_status gp_device_join(gp_device *device, const uint8_t id[GP_DEVICE_GROUP_ID_BYTES], uint32_t rank,
                         uint32_t world, gp_device_check_fn check, void *context, gp_error *err)
{
    (void)device;
    (void)id;
    (void)rank;
    (void)check;
    (void)context;
    return world == 1 ? GP_OK : gp_fail(err, GP_EUNSUPPORTED, "the host has no NCCL");
}

bool gp_device_joined(const gp_device *device)
{
    (void)device;
    return false;
}

void gp_device_register(gp_device *device, void *memory, size_t bytes)
{
    (void)device;
    (void)memory;
    (void)bytes;
}

void gp_device_leave(gp_device *device)
{
    (void)device;
}

gp_status gp_device_sum(gp_device *device, void *buffer, size_t count, bool wide, gp_error *err)
{
    (void)device;
    (void)buffer;
    (void)count;
    (void)wide;
    return gp_fail(err, GP_EPEER, "the host has no peers");
}

gp_status gp_device_poll(gp_device *device, gp_error *err)
{
    return gp_device_sync(device, err);
}

gp_status gp_device_abort(gp_device *device, gp_error *err)
{
    return gp_device_sync(device, err);
}
