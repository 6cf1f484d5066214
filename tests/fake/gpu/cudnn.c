/* cudnn.c: the cuDNN backend interface. Descriptors are attribute bags; a plan is a graph plus an
 * engine number and a tile number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake/gpu/cudnn_parts.h"
#include "tests/fake/gpu/parts.h"

struct cudnnContext {
    cudaStream_t stream;
};

static _Thread_local char why[160];

static cudnnStatus_t fail(cudnnStatus_t status, const char *text)
{
    snprintf(why, sizeof(why), "fake cuDNN: %s", text);
    return status;
}

/* ---- handles ---- */

FAKE_EXPORT size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

FAKE_EXPORT size_t cudnnGetCudartVersion(void)
{
    return CUDART_VERSION;
}

FAKE_EXPORT const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
           : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                  : "CUDNN_STATUS of the fake GPU";
}

FAKE_EXPORT void cudnnGetLastErrorString(char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", why);
}

FAKE_EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    FAKE_CALL(cudnnCreate, cudnnStatus_t);
    if (fake_context() != cudaSuccess || fake_was_reset())
        return fail(CUDNN_STATUS_NOT_INITIALIZED, "there is no device, or it was reset");
    *out = calloc(1, sizeof(**out));
    return *out == NULL ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED : CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    FAKE_CALL(cudnnDestroy, cudnnStatus_t);
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    FAKE_CALL(cudnnSetStream, cudnnStatus_t);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *out)
{
    *out = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- bags ---- */

static size_t element_bytes(cudnnBackendAttributeType_t type)
{
    switch ((int)type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

static bag *bag_hold(bag *b)
{
    if (b != NULL)
        __atomic_add_fetch(&b->refs, 1, __ATOMIC_RELAXED);
    return b;
}

static void bag_release(bag *b);

static void attribute_drop(bag_attribute *a)
{
    for (int64_t i = 0; i < a->count && a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR; i++)
        bag_release(((bag **)a->data)[i]);
    free(a->data);
}

static void bag_release(bag *b)
{
    if (b == NULL || __atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    for (int i = 0; i < b->count; i++)
        attribute_drop(&b->attributes[i]);
    bag_release(b->graph);
    free(b);
}

const bag_attribute *bag_find(const bag *b, int name)
{
    for (int i = 0; b != NULL && i < b->count; i++)
        if (b->attributes[i].name == name)
            return &b->attributes[i];
    return NULL;
}

const bag *bag_link(const bag *b, int name, int64_t index)
{
    const bag_attribute *a = bag_find(b, name);

    return a == NULL || index >= a->count || a->type != CUDNN_TYPE_BACKEND_DESCRIPTOR
               ? NULL
               : ((bag **)a->data)[index];
}

int64_t bag_integer(const bag *b, int name, int64_t index, int64_t otherwise)
{
    const bag_attribute *a = bag_find(b, name);

    if (a == NULL || index >= a->count)
        return otherwise;
    switch (element_bytes((cudnnBackendAttributeType_t)a->type)) {
    case 8:
        return ((const int64_t *)a->data)[index];
    case 4:
        return ((const int32_t *)a->data)[index];
    default:
        return ((const uint8_t *)a->data)[index];
    }
}

double bag_real(const bag *b, int name, double otherwise)
{
    const bag_attribute *a = bag_find(b, name);

    if (a == NULL || a->count == 0)
        return otherwise;
    return a->type == CUDNN_TYPE_DOUBLE ? *(const double *)a->data : (double)*(const float *)a->data;
}

FAKE_EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                       cudnnBackendDescriptor_t *out)
{
    bag *b;

    FAKE_CALL(cudnnBackendCreateDescriptor, cudnnStatus_t);
    b = calloc(1, sizeof(*b));
    if (b == NULL)
        return fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    b->type = type;
    b->refs = 1;
    b->engine = -1;
    *out = (cudnnBackendDescriptor_t)b;
    return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    bag_release((bag *)descriptor);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- plans as text: engine, tile, and the graph in hexadecimal, for another process ---- */

enum { TEXT_DEPTH = 8, TEXT_ELEMENTS = 4096 };

static bool attribute_in_text(const bag_attribute *a)
{
    return a->type != CUDNN_TYPE_HANDLE && a->type != CUDNN_TYPE_VOID_PTR;
}

/* Write a bag: its type and number of attributes; then of each attribute the name, the type, the
 * number of elements, and the elements, which may be bags. */
static void bag_write(FILE *out, const bag *b)
{
    int count = 0;

    for (int i = 0; i < b->count; i++)
        count += attribute_in_text(&b->attributes[i]);
    fprintf(out, " %x %x", (unsigned)b->type, (unsigned)count);
    for (int i = 0; i < b->count; i++) {
        const bag_attribute *a = &b->attributes[i];
        size_t bytes = element_bytes((cudnnBackendAttributeType_t)a->type);

        if (!attribute_in_text(a))
            continue;
        fprintf(out, " %x %x %llx", (unsigned)a->name, (unsigned)a->type, (unsigned long long)a->count);
        for (int64_t k = 0; k < a->count; k++) {
            unsigned long long value = 0;

            if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
                bag_write(out, ((bag **)a->data)[k]);
                continue;
            }
            memcpy(&value, (const char *)a->data + (size_t)k * bytes, bytes);
            fprintf(out, " %llx", value);
        }
    }
}

/* Read what bag_write() wrote. NULL: malformed, or no memory. */
static bag *bag_read(char **at, int depth)
{
    bag *b = depth == TEXT_DEPTH ? NULL : calloc(1, sizeof(*b));
    bool whole = b != NULL;
    unsigned long long count;

    if (b == NULL)
        return NULL;
    b->refs = 1;
    b->engine = -1;
    b->final = true;
    b->type = (cudnnBackendDescriptorType_t)strtoull(*at, at, 16);
    count = strtoull(*at, at, 16);
    whole = count <= BAG_ATTRIBUTES;
    for (unsigned long long i = 0; i < count && whole; i++) {
        bag_attribute *a = &b->attributes[b->count];
        size_t bytes;

        a->name = (int)strtoull(*at, at, 16);
        a->type = (int)strtoull(*at, at, 16);
        int64_t elements = (int64_t)strtoull(*at, at, 16);

        bytes = element_bytes((cudnnBackendAttributeType_t)a->type);
        a->data = elements < 0 || elements > TEXT_ELEMENTS ? NULL : calloc((size_t)elements + 1, bytes);
        whole = a->data != NULL;
        b->count += whole;
        for (a->count = 0; whole && a->count < elements; a->count += whole) {
            void *to = (char *)a->data + (size_t)a->count * bytes;

            if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
                bag *named = bag_read(at, depth + 1);

                whole = named != NULL;
                memcpy(to, &named, bytes);
            } else {
                unsigned long long value = strtoull(*at, at, 16);

                memcpy(to, &value, bytes);
            }
        }
    }
    if (whole)
        return b;
    bag_release(b);
    return NULL;
}

/* Return the number of bytes of the text, or 0 without memory. */
static int64_t text_write(const bag *plan, int64_t asked, char *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    if (file == NULL)
        return 0;
    fprintf(file, "{\"engine\":%lld,\"tile\":%lld,\"graph\":\"", (long long)plan->engine,
            (long long)plan->tile);
    bag_write(file, plan->graph);
    fputs("\"}", file);
    fclose(file);
    if (out != NULL)
        memcpy(out, text, (size_t)asked < bytes ? (size_t)asked : bytes);
    free(text);
    return (int64_t)bytes;
}

static cudnnStatus_t text_read(bag *plan, const char *text, int64_t bytes)
{
    char *copy = calloc(1, (size_t)bytes + 1), *at;
    long long engine, tile;
    int begin = 0;

    if (copy == NULL)
        return fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    memcpy(copy, text, (size_t)bytes);
    at = copy;
    if (sscanf(copy, "{\"engine\":%lld,\"tile\":%lld,\"graph\":\"%n", &engine, &tile, &begin) == 2 &&
        begin > 0) {
        at = copy + begin;
        plan->graph = bag_read(&at, 0);
    }
    free(copy);
    if (plan->graph == NULL)
        return fail(CUDNN_STATUS_BAD_PARAM, "this is no plan");
    plan->engine = engine;
    plan->tile = tile;
    return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t count,
                                                   const void *values)
{
    bag *b = (bag *)descriptor;
    size_t bytes = element_bytes(type) * (size_t)count;
    bag_attribute made = { (int)name, (int)type, count, NULL };

    FAKE_CALL(cudnnBackendSetAttribute, cudnnStatus_t);
    if (b->final)
        return fail(CUDNN_STATUS_BAD_PARAM, "an attribute is set after the descriptor was finalised");
    if (values == NULL)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an attribute is NULL");
    if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
        return text_read(b, values, count);
    made.data = malloc(bytes + 1);
    if (made.data == NULL || b->count == BAG_ATTRIBUTES)
        return fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no room for an attribute");
    memcpy(made.data, values, bytes);
    for (int64_t i = 0; i < count && type == CUDNN_TYPE_BACKEND_DESCRIPTOR; i++) {
        bag *named = ((bag **)made.data)[i];

        if (named == NULL || !named->final) {
            free(made.data);
            return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is named that is not finalised");
        }
        bag_hold(named);
    }
    for (int i = 0; i < b->count; i++)
        if (b->attributes[i].name == (int)name) {
            attribute_drop(&b->attributes[i]);
            b->attributes[i] = made;
            return CUDNN_STATUS_SUCCESS;
        }
    b->attributes[b->count++] = made;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- finalising ---- */

static cudnnStatus_t tensor_check(const bag *b)
{
    const bag_attribute *dims = bag_find(b, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const bag_attribute *strides = bag_find(b, CUDNN_ATTR_TENSOR_STRIDES);

    if (dims == NULL || strides == NULL || dims->count != strides->count || dims->count > TENSOR_DIMS ||
        bag_find(b, CUDNN_ATTR_TENSOR_UNIQUE_ID) == NULL || bag_find(b, CUDNN_ATTR_TENSOR_DATA_TYPE) == NULL)
        return fail(CUDNN_STATUS_BAD_PARAM, "a tensor lacks its type, dimensions, strides or id");
    return CUDNN_STATUS_SUCCESS;
}

static bag *graph_of(const bag *b)
{
    const bag *config = b->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
                            ? bag_link(b, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0)
                            : b;
    const bag *engine = bag_link(config, CUDNN_ATTR_ENGINECFG_ENGINE, 0);

    return config == NULL          ? NULL
           : config->graph != NULL ? config->graph
           : engine == NULL        ? NULL
                                   : engine->graph;
}

static int64_t engine_of(const bag *b)
{
    const bag *engine = bag_link(b, CUDNN_ATTR_ENGINECFG_ENGINE, 0);

    return engine != NULL ? engine->engine : b->engine;
}

FAKE_EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    bag *b = (bag *)descriptor;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    FAKE_CALL(cudnnBackendFinalize, cudnnStatus_t);
    switch ((int)b->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        status = tensor_check(b);
        break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        if (!cudnn_ops_known(b))
            status = fail(CUDNN_STATUS_NOT_SUPPORTED, "a graph with an operation that is not known here");
        break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        b->engine = bag_integer(b, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0, b->engine);
        if (b->graph == NULL)
            b->graph = bag_hold((bag *)(uintptr_t)bag_link(b, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0));
        if (b->engine < 0 || b->engine >= fake_number("FAKE_GPU_ENGINES", 3))
            status = fail(CUDNN_STATUS_NOT_SUPPORTED, "there is no engine of that number");
        break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
        if (b->graph != NULL) { /* loaded from text: compiles nothing */
            status = (cudnnStatus_t)FAKE_REACHED(cudnnPlanFromText);
            break;
        }

        /* separate fault point: a plan proposed by heuristics may not build */
        int code = FAKE_REACHED(cudnnPlan);

        if (code == FAKE_HANG)
            fake_wait_for_ever();
        b->graph = bag_hold(graph_of(b));
        const bag *config = bag_link(b, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);

        if (config != NULL) {
            b->engine = engine_of(config);
            b->tile = config->tile;
        }
        if (code != 0 || b->graph == NULL)
            status =
                fail(code != 0 ? (cudnnStatus_t)code : CUDNN_STATUS_BAD_PARAM, "the plan does not build");
        break;
    }
    default:
        break;
    }
    b->final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* ---- reading ---- */

/* List all engines with their first tile, then all with the second: cuDNN interleaves engines. */
static cudnnStatus_t engines_get(const bag *heuristics, int64_t asked, int64_t *count, void *values)
{
    bag **configs = values;
    long engines = fake_number("FAKE_GPU_ENGINES", 3);

    *count = engines * fake_number("FAKE_GPU_TILES", 2);
    for (int64_t i = 0; i < asked && i < *count && configs != NULL; i++) {
        configs[i]->engine = i % engines;
        configs[i]->tile = i / engines;
        bag_release(configs[i]->graph);
        configs[i]->graph =
            bag_hold((bag *)(uintptr_t)bag_link(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0));
        configs[i]->final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Fill the given knob choices. Like cuDNN 9.19, return the number filled, also if there are more:
 * a query for 0 elements returns count 0. */
static int64_t knobs_get(const bag *config, int64_t asked, bag **choices)
{
    const int64_t knobs[][2] = { { CUDNN_KNOB_TYPE_SWIZZLE, 1 },
                                 { CUDNN_KNOB_TYPE_TILE_SIZE, config->tile } };
    int64_t count = sizeof(knobs) / sizeof(knobs[0]);

    count = asked < count ? asked : count;
    for (int64_t i = 0; i < count; i++) {
        memcpy(choices[i]->knob, knobs[i], sizeof(knobs[i]));
        choices[i]->final = true;
    }
    return count;
}

static void engine_get(const bag *config, void *values)
{
    bag *engine = *(bag **)values;

    engine->engine = engine_of(config);
    bag_release(engine->graph);
    engine->graph = bag_hold(graph_of(config));
    engine->final = true;
}

/* Return the notes of an engine: 1 uses tensor cores, 2 is not deterministic, others have no
 * notes. */
static int64_t notes_get(const bag *engine, int64_t asked, int32_t *values)
{
    if (engine->engine != 1 && engine->engine != 2)
        return 0;
    if (asked > 0 && values != NULL)
        values[0] =
            engine->engine == 1 ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE : CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return 1;
}

FAKE_EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t asked,
                                                   int64_t *count, void *values)
{
    const bag *b = (const bag *)descriptor;
    const bag_attribute *a;

    FAKE_CALL(cudnnBackendGetAttribute, cudnnStatus_t);
    if (!b->final)
        return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is read that is not finalised");
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return engines_get(b, asked, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        *count = 1;
        engine_get(b, values);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *count = notes_get(b, asked, values);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        *count = b->engine == fake_number("FAKE_GPU_COMPILED", -1);
        if (*count == 1 && asked > 0 && values != NULL)
            *(int32_t *)values = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        *count = knobs_get(b, asked, values);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
        *count = 1;
        *(int32_t *)values = (int32_t)b->knob[0];
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
        *count = 1;
        *(int64_t *)values = b->knob[1];
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *count = 1;
        *(int64_t *)values = b->engine;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
        *count = 1;
        *(int64_t *)values = fake_number("FAKE_GPU_ENGINES", 3);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
        *count = 1;
        *(int64_t *)values = CUDNN_WORKSPACE;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
        *count = text_write(b, asked, values);
        return *count == 0 ? fail(CUDNN_STATUS_NOT_SUPPORTED, "no memory for the text of a plan")
                           : CUDNN_STATUS_SUCCESS;
    default:
        a = bag_find(b, (int)name);
        if (a == NULL || a->type != (int)type)
            return fail(CUDNN_STATUS_BAD_PARAM, "there is no such attribute");
        *count = a->count;
        if (values != NULL)
            memcpy(values, a->data, element_bytes(type) * (size_t)(asked < a->count ? asked : a->count));
        return CUDNN_STATUS_SUCCESS;
    }
}

/* ---- executing ---- */

static tensor tensor_of(const bag *b)
{
    static const number_type types[] = {
        [CUDNN_DATA_FLOAT] = NUMBER_F32,   [CUDNN_DATA_DOUBLE] = NUMBER_F64,
        [CUDNN_DATA_HALF] = NUMBER_F16,    [CUDNN_DATA_INT8] = NUMBER_I8,
        [CUDNN_DATA_INT32] = NUMBER_I32,   [CUDNN_DATA_UINT8] = NUMBER_U8,
        [CUDNN_DATA_INT64] = NUMBER_I64,   [CUDNN_DATA_BFLOAT16] = NUMBER_BF16,
        [CUDNN_DATA_BOOLEAN] = NUMBER_BIT, [CUDNN_DATA_UINT32] = NUMBER_U32,
    };
    int64_t type = bag_integer(b, CUDNN_ATTR_TENSOR_DATA_TYPE, 0, 0);
    tensor t = { .id = bag_integer(b, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0, 0),
                 .type = (size_t)type < sizeof(types) / sizeof(types[0]) ? types[type] : NUMBER_NONE,
                 .rank = bag_find(b, CUDNN_ATTR_TENSOR_DIMENSIONS)->count };

    for (int64_t i = 0; i < t.rank; i++) {
        t.dim[i] = bag_integer(b, CUDNN_ATTR_TENSOR_DIMENSIONS, i, 1);
        t.stride[i] = bag_integer(b, CUDNN_ATTR_TENSOR_STRIDES, i, 1);
    }
    return t;
}

static size_t tensor_span(const tensor *t)
{
    int64_t last = 0;

    for (int64_t i = 0; i < t->rank; i++)
        last += (t->dim[i] - 1) * t->stride[i];
    return t->type == NUMBER_BIT ? (size_t)last / 8 + 1 : (size_t)(last + 1) * number_bytes(t->type);
}

/* Bind a tensor to memory: allocated for a virtual tensor, else the variant pack's pointer. */
static cudnnStatus_t tensor_bind(execution *e, const bag *b, const bag *pack)
{
    tensor t = tensor_of(b);
    const bag_attribute *ids = bag_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const bag_attribute *pointers = bag_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

    for (int i = 0; i < e->tensor_count; i++)
        if (e->tensors[i].id == t.id)
            return CUDNN_STATUS_SUCCESS;
    if (e->tensor_count == GRAPH_TENSORS || t.type == NUMBER_NONE)
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "a tensor too many, or of a type that is not known here");
    t.owned = bag_integer(b, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0, 0) != 0;
    if (t.owned) {
        t.at = calloc(1, tensor_span(&t));
        if (t.at == NULL)
            return fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    }
    for (int64_t i = 0; ids != NULL && i < ids->count && i < pointers->count && !t.owned; i++)
        if (((const int64_t *)ids->data)[i] == t.id)
            t.at = ((void **)pointers->data)[i];
    if (t.at == NULL)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor has no memory in the variant pack");
    if (bag_integer(b, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0, 0) != 0)
        t.by_value = number_get(t.at, t.type, 0);
    else if (!t.owned && !fake_on_device(t.at, tensor_span(&t))) {
        fake_violation("cuDNN's tensor %lld of %zu bytes at %p is not in device memory", (long long)t.id,
                       tensor_span(&t), t.at);
        return fail(CUDNN_STATUS_BAD_PARAM, "a tensor is not in device memory, or too long for its block");
    }
    if (bag_integer(b, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0, 0) != 0)
        t.at = NULL;
    if (!t.owned && t.at != NULL && fake_number("FAKE_GPU_ALIGNMENT", 1) != 0 &&
        (uintptr_t)t.at % (uintptr_t)bag_integer(b, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0, 1) != 0)
        return fail(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                    "a tensor is not aligned as it was said to be");
    e->tensors[e->tensor_count++] = t;
    return CUDNN_STATUS_SUCCESS;
}

static void execution_drop(void *args)
{
    execution *e = *(execution **)args;

    for (int i = 0; i < e->tensor_count; i++)
        if (e->tensors[i].owned)
            free(e->tensors[i].at);
    bag_release(e->graph);
    free(e);
}

static void execution_run(void *args)
{
    execution *e = *(execution **)args;

    memset(e->workspace, 0x55, CUDNN_WORKSPACE); /* the plan overwrites the workspace */
    cudnn_ops_run(e);
    fake_spend(fake_number_at("FAKE_GPU_ENGINE_US", e->engine) + fake_number_at("FAKE_GPU_TILE_US", e->tile));
    if (bag_link(e->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, 1) != NULL)
        fake_spend(fake_number("FAKE_GPU_FUSED_US", 0));
}

static cudnnStatus_t execution_bind(execution *e, const bag *pack)
{
    const bag_attribute *workspace = bag_find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    e->workspace = workspace == NULL ? NULL : *(void **)workspace->data;
    if (!fake_on_device(e->workspace, CUDNN_WORKSPACE))
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the workspace is missing or too small");
    for (int64_t i = 0; status == CUDNN_STATUS_SUCCESS; i++) {
        const bag *op = bag_link(e->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i);

        if (op == NULL)
            break;
        for (int k = 0; k < op->count && status == CUDNN_STATUS_SUCCESS; k++) {
            const bag *tensor_bag = bag_link(op, op->attributes[k].name, 0);

            if (tensor_bag != NULL && tensor_bag->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
                status = tensor_bind(e, tensor_bag, pack);
        }
    }
    return status;
}

static int engine_reached(int64_t engine)
{
    static fake_point points[] = { { .name = "cudnnEngine0" }, { .name = "cudnnEngine1" },
                                   { .name = "cudnnEngine2" }, { .name = "cudnnEngine3" },
                                   { .name = "cudnnEngine4" }, { .name = "cudnnEngine5" },
                                   { .name = "cudnnEngine6" }, { .name = "cudnnEngine7" } };

    return engine < 0 || engine > 7 ? 0 : fake_reached(&points[engine]);
}

static int tile_reached(int64_t tile)
{
    static fake_point points[] = { { .name = "cudnnTile0" }, { .name = "cudnnTile1" },
                                   { .name = "cudnnTile2" }, { .name = "cudnnTile3" },
                                   { .name = "cudnnTile4" }, { .name = "cudnnTile5" },
                                   { .name = "cudnnTile6" }, { .name = "cudnnTile7" } };

    return tile < 0 || tile > 7 ? 0 : fake_reached(&points[tile]);
}

FAKE_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                              cudnnBackendDescriptor_t pack)
{
    const bag *p = (const bag *)plan;
    int reached = FAKE_REACHED(cudnnBackendExecute), of_engine = engine_reached(p->engine),
        of_tile = tile_reached(p->tile);
    execution *e = calloc(1, sizeof(*e));
    cudnnStatus_t status;

    if (e == NULL || !p->final || !((const bag *)pack)->final) {
        free(e);
        return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan or a pack is not finalised");
    }
    reached = reached != 0 ? reached : of_engine != 0 ? of_engine : of_tile;
    e->graph = bag_hold(p->graph);
    e->engine = p->engine;
    e->tile = p->tile;
    status = execution_bind(e, (const bag *)pack);
    if (status != CUDNN_STATUS_SUCCESS || (reached > 0 && (reached < 700 || reached >= 800))) {
        execution_drop(&e);
        return status != CUDNN_STATUS_SUCCESS ? status : fail((cudnnStatus_t)reached, "injected fault");
    }
    if (fake_push(handle->stream, reached, execution_run, execution_drop, &e, sizeof(e)) != cudaSuccess)
        return fail(CUDNN_STATUS_EXECUTION_FAILED, "the stream takes nothing");
    return CUDNN_STATUS_SUCCESS;
}
