/* Convolutions by the graph API of cuDNN; cudnn_conv.h describes the interface. The file stays
 * whole: building a graph, choosing an engine and running the plan use the same descriptors. */
#include "worker/backend/cuda/libraries/cudnn_conv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/crc32c.h"

/* make_graph() version. Increment it when make_graph() builds another graph for the same
 * request. */
enum { GRAPH = 1 };
enum { DESCRIPTORS_MAX = 40, GRAPH_OPS_MAX = 5, CONFIGS_MAX = 64, KNOBS_MAX = 48, WORKSPACE_MAX = 1 << 30 };

/* A plan. */
struct gp_cudnn_conv {
    cudnnBackendDescriptor_t plan, pack;
    gp_cudnn_engine engine;
    const gp_compiled *kept; /* for a plan that was read from the cache as `what` */
    char what[GP_COMPILED_WHAT_BYTES];
    /* pointers with which the variant pack was finalised, then the workspace */
    void *packed[GP_CUDNN_POINTERS + 1];
};

/* Descriptors of a graph under construction. Stores the first error. */
typedef struct builder {
    cudnnBackendDescriptor_t owned[DESCRIPTORS_MAX];
    int count;
    cudnnStatus_t status;
} builder;

static cudnnBackendDescriptor_t make(builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;

    if (b->status == CUDNN_STATUS_SUCCESS && b->count < DESCRIPTORS_MAX)
        b->status = cudnnBackendCreateDescriptor(type, &made);
    if (made != NULL)
        b->owned[b->count++] = made;
    return made;
}

static void set(builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = cudnnBackendSetAttribute(d, name, type, count, value);
}

static void finalize(builder *b, cudnnBackendDescriptor_t d)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = cudnnBackendFinalize(d);
}

static void builder_deinit(builder *b)
{
    while (b->count > 0)
        cudnnBackendDestroyDescriptor(b->owned[--b->count]);
}

/* ---- graph ---- */

static cudnnBackendDescriptor_t make_tensor(builder *b, int64_t id, cudnnDataType_t type,
                                            const int64_t dim[4], bool packed, bool is_virtual)
{
    const int64_t dense_strides[4] = { dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1 };
    const int64_t packed_strides[4] = { dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1] };
    const int64_t alignment = 16;
    cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, packed ? packed_strides : dense_strides);
    set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (is_virtual)
        set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    finalize(b, d);
    return d;
}

static cudnnDataType_t number_type(const gp_kernel_image *image)
{
    return image->narrow == GP_NARROW_BF16  ? CUDNN_DATA_BFLOAT16
           : image->narrow == GP_NARROW_F16 ? CUDNN_DATA_HALF
                                            : CUDNN_DATA_FLOAT;
}

/* Tensor ids: those with a pointer first, then virtual tensors. */
enum { CONV_X, CONV_W, CONV_Y, CONV_VECTOR, CONV_IMAGE, CONV_SUMS, CONV_SQUARES, CONV_VIRTUAL };

typedef struct shapes {
    cudnnDataType_t type;
    bool packed;
    int64_t x[4], w[4], y[4], vector[4];
} shapes;

static shapes shapes_of(const gp_conv_request *r)
{
    const uint32_t channels = gp_conv_channels(&r->x);

    return (shapes){ .type = number_type(&r->x),
                     .packed = r->x.channel_stride == 1,
                     .x = { r->rows, channels, r->x.height, r->x.width },
                     .w = { r->y.channels, channels / (uint32_t)r->groups, r->kernel[0], r->kernel[1] },
                     .y = { r->rows, r->y.channels, r->y.height, r->y.width },
                     .vector = { 1, r->y.channels, 1, 1 } };
}

static cudnnBackendDescriptor_t make_window(builder *b, const gp_conv_request *r)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t dims = 2, before[2] = { r->padding[0], r->padding[1] };
    const int64_t after[2] = { r->padding[2], r->padding[3] }, stride[2] = { r->stride[0], r->stride[1] };
    const int64_t dilation[2] = { r->dilation[0], r->dilation[1] };
    cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

    set(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    set(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    set(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after);
    set(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    finalize(b, d);
    return d;
}

/* Attribute names of x, weights, y, window, alpha and beta in each pass. */
typedef struct pass_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t name[6];
} pass_names;

static const pass_names passes[] = {
    [GP_CONV_FORWARD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          { CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA } },
    [GP_CONV_DATA] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                       { CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA } },
    [GP_CONV_WEIGHTS] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                          { CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA } },
};

/* Set the handle attribute, which newer versions neither need nor list. */
static void set_handle(builder *b, cudnnBackendDescriptor_t d, int name, cudnnHandle_t handle)
{
    if (handle != NULL)
        set(b, d, (cudnnBackendAttributeName_t)name, CUDNN_TYPE_HANDLE, 1, &handle);
}

/* A graph under construction: the operations and the last output tensor. */
typedef struct chain {
    builder *b;
    shapes at;
    const int64_t *dim; /* dimensions of the tensor passed from one operation to the next */
    cudnnBackendDescriptor_t ops[GRAPH_OPS_MAX], head;
    int count, left; /* left: remaining operation count */
} chain;

/* Return the output tensor for the next operation: the pass output if it is the last operation. */
static cudnnBackendDescriptor_t chain_next(chain *c, int64_t output)
{
    c->left--;
    c->head = c->left == 0 ? make_tensor(c->b, 1 + output, c->at.type, c->dim, c->at.packed, false)
                           : make_tensor(c->b, 1 + CONV_VIRTUAL + c->count, CUDNN_DATA_FLOAT, c->dim,
                                         c->at.packed, true);
    return c->head;
}

/* Append a pointwise operation on the current tensor.
 *   output  attribute name of the output
 *   with    second operand; NULL: none */
static void chain_point(chain *c, cudnnPointwiseMode_t mode, int64_t output, cudnnBackendDescriptor_t with,
                        const cudnnBackendAttributeName_t names[3])
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    cudnnBackendDescriptor_t before = c->head, to = chain_next(c, output),
                             how = make(c->b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;

    set(c->b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(c->b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    if (mode == CUDNN_POINTWISE_RELU_FWD)
        set(c->b, how, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    finalize(c->b, how);
    op = make(c->b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(c->b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set(c->b, op, names[0], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &before);
    if (with != NULL)
        set(c->b, op, names[1], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &with);
    set(c->b, op, names[2], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
    finalize(c->b, op);
    c->ops[c->count++] = op;
}

/* Append the sums of squares and values, in addition to the output. */
static void chain_sums(chain *c)
{
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t sums = make_tensor(c->b, 1 + CONV_SUMS, f32, c->at.vector, c->at.packed, false);
    cudnnBackendDescriptor_t squares =
        make_tensor(c->b, 1 + CONV_SQUARES, f32, c->at.vector, c->at.packed, false);
    cudnnBackendDescriptor_t op = make(c->b, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);

    set(c->b, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set(c->b, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    set(c->b, op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->head);
    set(c->b, op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &sums);
    set(c->b, op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &squares);
    finalize(c->b, op);
    c->ops[c->count++] = op;
}

/* ---- engines ---- */

/* Return a checksum of a configuration's knobs. Heuristics list an engine several times, with
 * different tile and cluster sizes, so the engine number alone does not identify a configuration.
 * cuDNN fills descriptors that the caller made and returns their number: a query for 0 elements
 * returns 0. */
static uint32_t knobs_sum(cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t choices[KNOBS_MAX];
    int64_t count = 0, got;
    uint32_t sum = 0;
    int made = 0;

    while (made < KNOBS_MAX && cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                                                            &choices[made]) == CUDNN_STATUS_SUCCESS)
        made++;
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 made, &count, choices) != CUDNN_STATUS_SUCCESS)
        count = 0;
    for (int64_t i = 0; i < count && i < made; i++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
        int64_t knob[2] = { 0 };

        cudnnBackendGetAttribute(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got,
                                 &type);
        cudnnBackendGetAttribute(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got,
                                 &knob[1]);
        knob[0] = (int64_t)type;
        sum = gp_crc32c(sum, knob, sizeof(knob));
    }
    for (int i = 0; i < made; i++)
        cudnnBackendDestroyDescriptor(choices[i]);
    return sum;
}

/* Check an engine's numerical notes: results must be reproducible, and strict float32 excludes
 * reduced precision. */
static bool notes_fit(cudnnBackendDescriptor_t engine, const gp_conv_request *r, bool *tensor_cores)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    bool strict = !r->x.narrow && !r->tf32, fits = true;
    int64_t count = 0;

    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
            fits = false;
        *tensor_cores = *tensor_cores || notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        if (strict && (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
                       notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
                       notes[i] == CUDNN_NUMERICAL_NOTE_FFT || notes[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD))
            fits = false;
    }
    return fits;
}

/* Read an engine's properties. Return false if it does not suit the request. */
static bool engine_check(gp_cudnn_engine *out, cudnnBackendDescriptor_t config, const gp_conv_request *r)
{
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    bool fits;
    int64_t got = 0, count = 0;

    *out = (gp_cudnn_engine){ .index = -1 };
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    fits = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                    &got, &engine) == CUDNN_STATUS_SUCCESS &&
           notes_fit(engine, r, &out->tensor_cores);
    if (fits) {
        if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                     CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
            count = 0;
        for (int64_t i = 0; i < count && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
            out->compiled = out->compiled || notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got,
                                 &out->index);
        snprintf(out->name, sizeof(out->name), "%" PRId64 "-%08" PRIx32, out->index, knobs_sum(config));
    }
    cudnnBackendDestroyDescriptor(engine);
    return fits;
}

enum { PLAN_HANDLE = 400 };

/* Use a finalised plan. Return false if it failed or needs too much workspace. */
static bool plan_take(gp_cudnn_conv *conv, builder *b, cudnnBackendDescriptor_t plan, size_t *workspace)
{
    int64_t bytes = 0, got = 0;

    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                             1, &got, &bytes);
    if (b->status != CUDNN_STATUS_SUCCESS || bytes > WORKSPACE_MAX) {
        builder_deinit(b);
        return false;
    }
    conv->plan = plan;
    *workspace = (size_t)bytes;
    return true;
}

static bool plan_try(gp_cudnn_conv *conv, cudnnHandle_t handle, cudnnBackendDescriptor_t properties,
                     cudnnBackendDescriptor_t config, size_t *workspace)
{
    builder b = { .status = CUDNN_STATUS_SUCCESS };
    cudnnBackendDescriptor_t plan = make(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    set_handle(&b, plan, PLAN_HANDLE, handle);
    set(&b, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (properties != NULL)
        set(&b, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
    finalize(&b, plan);
    if (properties != NULL && b.status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER) {
        builder_deinit(&b); /* compiled for a device that is not present */
        *workspace = 0;
        return true;
    }
    return plan_take(conv, &b, plan, workspace);
}

/* ---- plans compiled by other processes ---- */

void gp_cudnn_conv_describe(const gp_conv_request *r, const char *engine, char what[GP_COMPILED_WHAT_BYTES])
{
    snprintf(what, GP_COMPILED_WHAT_BYTES,
             "graph %d pass %d numbers %d%s%s rows %u x %u %u %u y %u %u %u kernel %d %d stride %d %d "
             "dilation %d %d padding "
             "%d %d %d %d groups %d%s%s%s%s%s, engine %s",
             GRAPH, (int)r->pass, r->x.narrow, r->tf32 ? " tf32" : "",
             r->x.channel_stride == 1 ? " packed" : " dense", r->rows, gp_conv_channels(&r->x), r->x.height,
             r->x.width, r->y.channels, r->y.height, r->y.width, r->kernel[0], r->kernel[1], r->stride[0],
             r->stride[1], r->dilation[0], r->dilation[1], r->padding[0], r->padding[1], r->padding[2],
             r->padding[3], r->groups, r->bias ? " bias" : "", r->added ? " sum" : "", r->relu ? " relu" : "",
             r->masked ? " mask" : "", r->sums ? " moments" : "", engine == NULL ? "by rule" : engine);
}

/* Restore a plan from disk. Return false if the file is missing or cuDNN rejects it. */
static bool plan_restore(gp_cudnn_conv *conv, cudnnHandle_t handle, cudnnBackendDescriptor_t properties,
                         const gp_compiled *kept, const char *what, size_t *workspace)
{
    builder b = { .status = CUDNN_STATUS_SUCCESS };
    cudnnBackendDescriptor_t plan;
    size_t json_bytes;
    char *json = gp_compiled_read(kept, what, &json_bytes);

    if (json == NULL)
        return false;
    plan = make(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_handle(&b, plan, PLAN_HANDLE, handle);
    if (properties != NULL)
        set(&b, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
    set(&b, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)json_bytes, json);
    finalize(&b, plan);
    gp_free(json);
    return plan_take(conv, &b, plan, workspace);
}

static void plan_make_resident(const gp_cudnn_conv *conv, const gp_compiled *kept, const char *what)
{
    int64_t bytes = 0, got = 0;
    char *json;

    if (cudnnBackendGetAttribute(conv->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 0, &bytes, NULL) != CUDNN_STATUS_SUCCESS ||
        bytes < 1 || bytes > GP_COMPILED_BYTES_MAX)
        return;
    json = gp_malloc((size_t)bytes);
    if (json != NULL &&
        cudnnBackendGetAttribute(conv->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 bytes, &got, json) == CUDNN_STATUS_SUCCESS &&
        got == bytes)
        gp_compiled_write(kept, what, json, (size_t)bytes);
    gp_free(json);
}

/* ---- heuristics ---- */

/* State of a walk through the engines for a graph. */
typedef struct walk {
    builder b;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties, graph; /* properties NULL: use the handle's device */
    const gp_conv_request *request;
} walk;

/* Visit an engine. Return true to end the walk. */
typedef bool (*walk_fn)(void *context, const walk *w, const gp_cudnn_engine *engine,
                        cudnnBackendDescriptor_t config);

static bool walk_list(walk *w, cudnnBackendHeurMode_t mode, walk_fn visit, void *context)
{
    cudnnBackendDescriptor_t list = make(&w->b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), configs[CONFIGS_MAX];
    gp_cudnn_engine engine;
    int64_t got = 0;
    int made = 0;
    bool over = false;

    set(&w->b, list, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w->graph);
    set(&w->b, list, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (w->properties != NULL)
        set(&w->b, list, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w->properties);
    finalize(&w->b, list);
    if (w->b.status != CUDNN_STATUS_SUCCESS)
        return false;
    while (made < CONFIGS_MAX && cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                                              &configs[made]) == CUDNN_STATUS_SUCCESS)
        made++;
    if (cudnnBackendGetAttribute(list, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made,
                                 &got, configs) != CUDNN_STATUS_SUCCESS)
        got = 0;
    for (int64_t i = 0; i < got && i < made && !over; i++)
        over = engine_check(&engine, configs[i], w->request) && visit(context, w, &engine, configs[i]);
    for (int i = 0; i < made; i++)
        cudnnBackendDestroyDescriptor(configs[i]);
    return over;
}

/* Visit the engines of all heuristic modes: best guesses first, then slow but reliable engines. */
static bool walk_engines(cudnnHandle_t handle, const char *properties, const gp_conv_request *request,
                         walk_fn visit, void *context)
{
    static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK };
    walk w = { .b = { .status = CUDNN_STATUS_SUCCESS }, .handle = handle, .request = request };
    bool over = false;

    if (handle == NULL) {
        w.properties = make(&w.b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
        set(&w.b, w.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            (int64_t)strlen(properties), properties);
        finalize(&w.b, w.properties);
    }
    enum { GRAPH_HANDLE = 800 };
    static const cudnnBackendAttributeName_t forward[3] = { CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                            CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                            CUDNN_ATTR_OPERATION_POINTWISE_YDESC };
    static const cudnnBackendAttributeName_t backward[3] = { CUDNN_ATTR_OPERATION_POINTWISE_DYDESC,
                                                             CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                             CUDNN_ATTR_OPERATION_POINTWISE_DXDESC };
    chain c = { .b = &w.b,
                .at = shapes_of(request),
                .left = 1 + request->bias + request->added + request->relu + request->masked };
    cudnnBackendDescriptor_t graph;

    const pass_names *pass = &passes[request->pass];
    const float one = 1.0f, zero = 0.0f;
    const int64_t *const dims[3] = { c.at.x, c.at.w, c.at.y };
    const int64_t output = request->pass == GP_CONV_DATA      ? CONV_X
                           : request->pass == GP_CONV_FORWARD ? CONV_Y
                                                              : CONV_W;
    cudnnBackendDescriptor_t tensors[3], window, op;

    c.dim = dims[output];
    for (int64_t i = 0; i < 3; i++)
        tensors[i] = i == output ? chain_next(&c, output)
                                 : make_tensor(c.b, 1 + i, c.at.type, dims[i], c.at.packed, false);
    window = make_window(c.b, request);
    op = make(c.b, pass->type);
    for (int i = 0; i < 3; i++)
        set(c.b, op, pass->name[i], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[i]);
    set(c.b, op, pass->name[3], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &window);
    set(c.b, op, pass->name[4], CUDNN_TYPE_FLOAT, 1, &one);
    set(c.b, op, pass->name[5], CUDNN_TYPE_FLOAT, 1, &zero);
    finalize(c.b, op);
    c.ops[c.count++] = op;
    if (request->bias)
        chain_point(&c, CUDNN_POINTWISE_ADD, CONV_Y,
                    make_tensor(&w.b, 1 + CONV_VECTOR, c.at.type, c.at.vector, c.at.packed, false), forward);
    if (request->added)
        chain_point(&c, CUDNN_POINTWISE_ADD, CONV_Y,
                    make_tensor(&w.b, 1 + CONV_IMAGE, c.at.type, c.at.y, c.at.packed, false), forward);
    if (request->relu)
        chain_point(&c, CUDNN_POINTWISE_RELU_FWD, CONV_Y, NULL, forward);
    if (request->masked)
        chain_point(&c, CUDNN_POINTWISE_RELU_BWD, CONV_X,
                    make_tensor(&w.b, 1 + CONV_IMAGE, c.at.type, c.at.x, c.at.packed, false), backward);
    if (request->sums)
        chain_sums(&c);
    graph = make(&w.b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set_handle(&w.b, graph, GRAPH_HANDLE, handle);
    set(&w.b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, c.count, c.ops);
    finalize(&w.b, graph);
    w.graph = graph;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]) && !over && w.b.status == CUDNN_STATUS_SUCCESS;
         i++)
        over = walk_list(&w, modes[i], visit, context);
    builder_deinit(&w.b);
    return over;
}

typedef struct wanted {
    gp_cudnn_conv *conv;
    const char *engine; /* NULL: any */
    const gp_compiled *kept;
    size_t *workspace;
} wanted;

static bool wanted_visit(void *context, const walk *w, const gp_cudnn_engine *engine,
                         cudnnBackendDescriptor_t config)
{
    wanted *want = context;
    gp_cudnn_conv *conv = want->conv;
    bool has;

    if (want->engine != NULL && strcmp(want->engine, engine->name) != 0)
        return false;
    conv->engine = *engine;
    if (!engine->compiled || want->kept == NULL)
        return plan_try(conv, w->handle, w->properties, config, want->workspace);
    gp_cudnn_conv_describe(w->request, engine->name, conv->what);
    conv->engine.read = plan_restore(conv, w->handle, w->properties, want->kept, conv->what, want->workspace);
    conv->kept = conv->engine.read ? want->kept : NULL;
    if (conv->engine.read)
        return true;
    has = plan_try(conv, w->handle, w->properties, config, want->workspace);
    if (has && conv->plan != NULL)
        plan_make_resident(conv, want->kept, conv->what);
    return has;
}

gp_status gp_cudnn_conv_new(gp_cudnn_conv **out, cudnnHandle_t handle, const char *properties,
                            const gp_compiled *kept, const gp_conv_request *request, const char *engine,
                            size_t *workspace, gp_error *err)
{
    gp_cudnn_conv *conv = calloc(1, sizeof(*conv));
    wanted want = { .conv = conv, .engine = engine, .kept = kept, .workspace = workspace };
    char why[160] = "";

    if (conv == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a convolution's plan");
    if (!walk_engines(handle, properties, request, wanted_visit, &want)) {
        cudnnGetLastErrorString(why, sizeof(why));
        free(conv);
        return gp_fail(err, GP_EUNSUPPORTED, "cuDNN has no plan for a convolution of %u to %u channels: %s",
                       request->x.channels, request->y.channels,
                       why[0] == '\0' ? "no engine supports it" : why);
    }
    *out = conv;
    return GP_OK;
}

typedef struct naming {
    gp_engine *engines;
    uint32_t count, most;
} naming;

static bool naming_visit(void *context, const walk *w, const gp_cudnn_engine *engine,
                         cudnnBackendDescriptor_t config)
{
    naming *n = context;

    (void)w;
    (void)config;
    for (uint32_t i = 0; i < n->count; i++)
        if (strcmp(n->engines[i].name, engine->name) == 0)
            return false;
    n->engines[n->count].number = engine->index;
    n->engines[n->count].compiled = engine->compiled;
    memcpy(n->engines[n->count].name, engine->name, sizeof(engine->name));
    return ++n->count == n->most;
}

uint32_t gp_cudnn_conv_engines(cudnnHandle_t handle, const char *properties, const gp_conv_request *request,
                               gp_engine *engines, uint32_t most)
{
    naming n = { .engines = engines, .most = most };

    if (most > 0)
        walk_engines(handle, properties, request, naming_visit, &n);
    return n.count;
}

void gp_cudnn_conv_free(gp_cudnn_conv *conv)
{
    if (conv == NULL)
        return;
    if (conv->pack != NULL)
        cudnnBackendDestroyDescriptor(conv->pack);
    if (conv->plan != NULL)
        cudnnBackendDestroyDescriptor(conv->plan);
    free(conv);
}

const gp_cudnn_engine *gp_cudnn_conv_engine(const gp_cudnn_conv *conv)
{
    return &conv->engine;
}

/* Create the variant pack. It is reused while the pointers stay the same, which is the usual
 * case. */
static cudnnStatus_t pack_make(gp_cudnn_conv *conv, void *const pointers[GP_CUDNN_POINTERS], void *workspace)
{
    builder b = { .status = CUDNN_STATUS_SUCCESS };
    cudnnBackendDescriptor_t pack;
    void *given[GP_CUDNN_POINTERS];
    int64_t ids[GP_CUDNN_POINTERS], count = 0;

    if (conv->pack != NULL && memcmp(conv->packed, pointers, GP_CUDNN_POINTERS * sizeof(*pointers)) == 0 &&
        conv->packed[GP_CUDNN_POINTERS] == workspace)
        return CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; i < GP_CUDNN_POINTERS; i++)
        if (pointers[i] != NULL) {
            ids[count] = 1 + i;
            given[count++] = pointers[i];
        }
    pack = make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, given);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(&b, pack);
    if (b.status != CUDNN_STATUS_SUCCESS) {
        builder_deinit(&b);
        return b.status;
    }
    if (conv->pack != NULL)
        cudnnBackendDestroyDescriptor(conv->pack);
    conv->pack = pack;
    memcpy(conv->packed, pointers, GP_CUDNN_POINTERS * sizeof(*pointers));
    conv->packed[GP_CUDNN_POINTERS] = workspace;
    return CUDNN_STATUS_SUCCESS;
}

gp_status gp_cudnn_conv_run(gp_cudnn_conv *conv, cudnnHandle_t handle,
                            void *const pointers[GP_CUDNN_POINTERS], void *workspace, gp_error *err)
{
    cudnnStatus_t status = pack_make(conv, pointers, workspace);
    char why[160] = "";

    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendExecute(handle, conv->plan, conv->pack);
    if (status == CUDNN_STATUS_SUCCESS)
        return GP_OK;
    cudnnGetLastErrorString(why, sizeof(why));
    if (conv->kept != NULL)
        gp_compiled_forget(conv->kept, conv->what);
    return gp_fail(err, GP_EIO, "cuDNN's engine %s failed: %s (%s)", conv->engine.name,
                   cudnnGetErrorString(status), why);
}
