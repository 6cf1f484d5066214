/* onnx_read.c -- read a model file: check it, unpack it, convert it, and copy the weights to the
 * graph layout.
 *
 * Files written by gradpool contain their netspec in the metadata. The netspec is used only if
 * the file's graph equals the graph that gp_onnx_write() makes from it. A file that another
 * program changed, or that an older gradpool wrote differently, is read by its nodes, like a
 * file from another program. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "common/model/onnx/onnx.h"
#include "common/model/onnx/onnx_map.h"
#include "common/model/onnx/onnx_proto.h"

#define REPEATED_MAX                                                                                         \
    ((size_t)1 << 28) /* maximum weights that ConstantOfShape and similar nodes repeat: 1 GiB */

/* Intermediate results of reading a model; all pointers are owned. */
typedef struct reading {
    Onnx__ModelProto *model;
    gp_netspec *spec;
    gp_graph *graph;
    gp_onnx_source *sources; /* [layer] */
    gp_onnx_store store;     /* memory of computed tensors */
    size_t external_bytes;   /* bytes read from external files */
    float *blob;
    char **class_names;
    uint32_t class_count;
} reading;

static void *allocate(void *failed, size_t bytes)
{
    void *block = gp_malloc(bytes);

    if (block == NULL)
        *(bool *)failed = true;
    return block;
}

static void release(void *failed, void *block)
{
    (void)failed;
    gp_free(block);
}

static gp_status unpack(Onnx__ModelProto **out, const void *data, size_t bytes, gp_error *err)
{
    bool failed = false;
    ProtobufCAllocator allocator = { .alloc = allocate, .free = release, .allocator_data = &failed };
    Onnx__ModelProto *model = onnx__model_proto__unpack(&allocator, bytes, data);

    if (model == NULL && failed)
        return gp_fail(err, GP_ENOMEM, "no memory for a model of %zu bytes", bytes);
    if (model == NULL)
        return gp_fail(err, GP_ECORRUPT, "the file is damaged or not an ONNX model");
    *out = model;
    return GP_OK;
}

static gp_status check_opset(const Onnx__ModelProto *model, int64_t *opset, gp_error *err)
{
    *opset = 0;
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = model->opset_import[i]->domain;

        if (domain == NULL || *domain == '\0' || strcmp(domain, "ai.onnx") == 0)
            *opset = model->opset_import[i]->version;
    }
    if (model->graph == NULL)
        return gp_fail(err, GP_ECORRUPT, "the file contains no graph; it is damaged or not an ONNX model");
    if (*opset < GP_ONNX_OPSET_MIN || *opset > GP_ONNX_OPSET_MAX)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "the model has ONNX opset %" PRId64
                       "; must be %d to %d (in Python: onnx.version_converter.convert_version(model, %d))",
                       *opset, GP_ONNX_OPSET_MIN, GP_ONNX_OPSET_MAX, GP_ONNX_OPSET);
    return GP_OK;
}

static const char *metadata(const Onnx__ModelProto *model, const char *key)
{
    for (size_t i = 0; i < model->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *pair = model->metadata_props[i];

        if (pair->key != NULL && pair->value != NULL && strcmp(pair->key, key) == 0)
            return pair->value;
    }
    return NULL;
}

/* ---- reading by metadata ---- */

/* Compare two messages by their packed bytes. */
static gp_status messages_equal(bool *equal, const ProtobufCMessage *a, const ProtobufCMessage *b,
                                gp_error *err)
{
    size_t bytes = protobuf_c_message_get_packed_size(a);

    *equal = bytes == protobuf_c_message_get_packed_size(b);
    if (!*equal)
        return GP_OK;
    uint8_t *packed = gp_calloc(bytes, 2);

    if (packed == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to compare %zu bytes", bytes);
    protobuf_c_message_pack(a, packed);
    protobuf_c_message_pack(b, packed + bytes);
    *equal = memcmp(packed, packed + bytes, bytes) == 0;
    gp_free(packed);
    return GP_OK;
}

/* Return whether the file has this tensor with equal name, shape and type, and equal data if
 * `ours` has data. */
static bool tensor_matches(const Onnx__GraphProto *graph, const Onnx__TensorProto *ours)
{
    const Onnx__TensorProto *found = gp_onnx_initializer_find(graph, ours->name);
    gp_onnx_tensor theirs, mine;

    if (found == NULL || found->n_dims != ours->n_dims || found->data_type != ours->data_type ||
        gp_onnx_tensor_of(&theirs, found, NULL) != GP_OK)
        return false;
    for (size_t i = 0; i < ours->n_dims; i++)
        if (found->dims[i] != ours->dims[i])
            return false;
    return gp_onnx_tensor_of(&mine, ours, NULL) != GP_OK ||
           memcmp(theirs.data, mine.data, (size_t)mine.count * gp_onnx_type_bytes(mine.type)) == 0;
}

/* Compare the file's graph with the graph that gp_onnx_write() would write. `ours` has no
 * weights, only scale and offset. */
static gp_status graphs_match(bool *match, Onnx__GraphProto *graph, const Onnx__GraphProto *ours,
                              gp_error *err)
{
    gp_status status = GP_OK;

    *match = graph->n_node == ours->n_node && graph->n_initializer == ours->n_initializer &&
             graph->n_input == 1 && graph->n_output == ours->n_output;
    if (*match)
        status = messages_equal(match, &graph->input[0]->base, &ours->input[0]->base, err);
    for (size_t i = 0; i < ours->n_output && *match && status == GP_OK; i++)
        status = messages_equal(match, &graph->output[i]->base, &ours->output[i]->base, err);
    for (size_t i = 0; i < ours->n_node && *match && status == GP_OK; i++)
        status = messages_equal(match, &graph->node[i]->base, &ours->node[i]->base, err);
    for (size_t i = 0; i < ours->n_initializer && *match; i++)
        *match = tensor_matches(graph, ours->initializer[i]);
    return status;
}

/* Return the index of a parameter among those of its layer. */
static uint32_t index_in_layer(const gp_graph *graph, uint32_t parameter)
{
    uint32_t index = 0;

    while (index < parameter &&
           graph->parameters[parameter - index - 1].layer == graph->parameters[parameter].layer)
        index++;
    return index;
}

static gp_status find_sources(reading *r, Onnx__GraphProto *graph, gp_error *err)
{
    r->sources = gp_calloc(r->spec->layer_count, sizeof(*r->sources));
    if (r->sources == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a model of %" PRIu32 " layers", r->spec->layer_count);
    for (uint32_t p = 0; p < r->graph->parameter_count; p++) {
        const gp_parameter *parameter = &r->graph->parameters[p];
        gp_onnx_source *source = &r->sources[parameter->layer];
        const Onnx__TensorProto *found = gp_onnx_initializer_find(graph, parameter->name);
        gp_status status = gp_onnx_tensor_of(&source->tensors[index_in_layer(r->graph, p)], found, err);

        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

/* Read the netspec from the metadata. On success either spec, graph and sources are set, or none
 * of them: the metadata do not match the file. */
static gp_status read_by_metadata(reading *r, gp_error *err)
{
    const char *text = metadata(r->model, GP_ONNX_KEY_NETWORK);
    gp_onnx_draft *draft = NULL;
    bool match = false;
    gp_error problem; /* reported only if out of memory; otherwise the nodes are read */
    gp_status status;

    if (text == NULL)
        return GP_OK;
    status = gp_netspec_from_json(&r->spec, text, strlen(text), &problem);
    if (status == GP_OK)
        status = gp_graph_new(&r->graph, r->spec, &problem);
    if (status == GP_OK)
        status = gp_onnx_draft_new(&draft, r->spec, r->graph, NULL, &problem);
    if (status == GP_OK)
        status = graphs_match(&match, r->model->graph, gp_onnx_draft_graph(draft), &problem);
    if (status == GP_OK && match)
        status = find_sources(r, r->model->graph, &problem);
    gp_onnx_draft_free(draft);
    if (status == GP_OK && match)
        return GP_OK;
    gp_netspec_free(r->spec);
    gp_graph_free(r->graph);
    r->spec = NULL;
    r->graph = NULL;
    return status == GP_ENOMEM ? gp_fail(err, status, "%s", problem.message) : GP_OK;
}

/* ---- weights ---- */

/* Return whether a tensor has the shape of a parameter. Trailing kernel sizes of 1 may be
 * missing: a signal has no width, and a matrix is a kernel of one pixel. */
static bool shape_fits(const gp_parameter *parameter, const gp_onnx_tensor *tensor, bool transposed)
{
    const gp_shape *wanted = &parameter->shape;
    const uint32_t rank = wanted->rank == 4 && tensor->rank >= 2 && tensor->rank < 4 ? 4 : tensor->rank;

    for (uint32_t i = 0; rank == wanted->rank && i < rank; i++)
        if ((i >= tensor->rank ? 1 : tensor->dims[transposed ? tensor->rank - 1 - i : i]) != wanted->dim[i])
            return false;
    /* A bias of shape [1, outputs] was checked when it was found. */
    return rank == wanted->rank || (wanted->rank == 1 && tensor->count == parameter->count);
}

static gp_status check_source(const gp_parameter *parameter, const gp_onnx_tensor *tensor, bool transposed,
                              gp_error *err)
{
    char name[GP_ONNX_SHOWN_BYTES], shape[64], wanted[64];
    gp_shape found = { .rank = 0 };

    if (tensor->data != NULL && gp_onnx_is_float(tensor) && shape_fits(parameter, tensor, transposed))
        return GP_OK;
    if (tensor->rank <= GP_RANK_MAX) {
        found.rank = tensor->rank;
        memcpy(found.dim, tensor->dims, found.rank * sizeof(*found.dim));
    }
    return gp_fail(err, GP_EINVAL, "%s has shape %s, but the initializer '%s' has %s", parameter->name,
                   gp_shape_format(&parameter->shape, wanted, sizeof(wanted)),
                   gp_onnx_shown(name, tensor->name),
                   found.rank == 0 ? "another rank" : gp_shape_format(&found, shape, sizeof(shape)));
}

static void copy_source(float *to, const gp_parameter *parameter, const gp_onnx_tensor *tensor,
                        bool transposed)
{
    const char *from = tensor->data;
    const int64_t outputs = parameter->shape.dim[0], inputs = parameter->shape.dim[1];

    if (tensor->splat) {
        for (int64_t i = 0; i < parameter->count; i++)
            memcpy(to + i, from, sizeof(float));
        return;
    }
    if (!transposed) {
        memcpy(to, from, (size_t)parameter->count * sizeof(float));
        return;
    }
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t i = 0; i < inputs; i++)
            memcpy(to + o * inputs + i, from + (i * outputs + o) * (int64_t)sizeof(float), sizeof(float));
}

/* Return the tensor for a parameter. *transposed: it is stored transposed. */
static const gp_onnx_tensor *source_of(const reading *r, uint32_t parameter, bool *transposed)
{
    const gp_onnx_source *source = &r->sources[r->graph->parameters[parameter].layer];
    const uint32_t index = index_in_layer(r->graph, parameter);

    *transposed = index == 0 && source->transposed;
    return &source->tensors[index];
}

typedef struct use {
    const char *data;
    uint32_t parameter;
} use;

static int use_compare(const void *left, const void *right)
{
    const use *a = left, *b = right;

    if (a->data != b->data)
        return a->data < b->data ? -1 : 1;
    return a->parameter < b->parameter ? -1 : a->parameter > b->parameter;
}

/* Count the weights that must be copied because several nodes read the same initializer; every
 * layer has its own weights. Vectors, and kernels with one number per channel, are copied:
 * exporters merge tensors that are equal by chance, such as biases and scales of untrained
 * networks. Other kernels are shared on purpose and rejected. */
static gp_status count_shared(const reading *r, use *uses, size_t *repeated, gp_error *err)
{
    const gp_graph *graph = r->graph;
    char name[GP_ONNX_SHOWN_BYTES];
    bool transposed;

    for (uint32_t p = 0; p < graph->parameter_count; p++)
        uses[p] = (use){ .data = source_of(r, p, &transposed)->data, .parameter = p };
    qsort(uses, graph->parameter_count, sizeof(*uses), use_compare);
    for (uint32_t i = 1; i < graph->parameter_count; i++) {
        const gp_parameter *parameter = &graph->parameters[uses[i].parameter];
        const gp_onnx_tensor *tensor = source_of(r, uses[i].parameter, &transposed);

        if (uses[i].data != uses[i - 1].data || tensor->splat)
            continue;
        if (parameter->count > parameter->shape.dim[0])
            return gp_fail(err, GP_EUNSUPPORTED,
                           "%s and %s share the initializer '%s'; shared weights are not supported",
                           graph->parameters[uses[i - 1].parameter].name, parameter->name,
                           gp_onnx_shown(name, tensor->name));
        *repeated += (size_t)parameter->count;
    }
    return GP_OK;
}

/* Check the origin of every weight: stored once in the file or externally, computed within the
 * limit of the store, or repeated by nodes up to repeated_max. Otherwise a small file could
 * request gigabytes. */
static gp_status check_sources(const reading *r, size_t bytes, size_t repeated_max, gp_error *err)
{
    const gp_graph *graph = r->graph;
    size_t repeated = 0;
    bool transposed;
    use *uses = gp_calloc(graph->parameter_count + 1, sizeof(*uses));
    gp_status status = uses != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for a list of weights");

    for (uint32_t p = 0; p < graph->parameter_count && status == GP_OK; p++) {
        const gp_onnx_tensor *tensor = source_of(r, p, &transposed);

        status = check_source(&graph->parameters[p], tensor, transposed, err);
        repeated += tensor->splat ? (size_t)graph->parameters[p].count : 0;
    }
    if (status == GP_OK)
        status = count_shared(r, uses, &repeated, err);
    gp_free(uses);
    if (status != GP_OK)
        return status;
    if (repeated > repeated_max)
        return gp_fail(err, GP_ELIMIT,
                       "the model expands constants to %zu weights; at most %zu are supported", repeated,
                       repeated_max);
    if (graph->blob_count - repeated > (bytes + r->external_bytes + r->store.bytes) / sizeof(float))
        return gp_fail(err, GP_ECORRUPT, "the model has %zu weights, more than its %zu bytes can hold",
                       graph->blob_count - repeated, bytes + r->external_bytes + r->store.bytes);
    return GP_OK;
}

static gp_status read_blob(reading *r, size_t bytes, size_t repeated_max, gp_error *err)
{
    const gp_graph *graph = r->graph;
    gp_status status = check_sources(r, bytes, repeated_max, err);
    bool transposed;

    if (status != GP_OK)
        return status;
    r->blob = gp_malloc(graph->blob_count * sizeof(float));
    if (r->blob == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu weights", graph->blob_count);
    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_onnx_tensor *tensor = source_of(r, p, &transposed);

        copy_source(r->blob + graph->parameters[p].offset, &graph->parameters[p], tensor, transposed);
    }
    return GP_OK;
}

void gp_class_names_free(char **names, uint32_t count)
{
    for (uint32_t i = 0; i < count && names != NULL; i++)
        gp_free(names[i]);
    gp_free(names);
}

gp_status gp_class_names_parse(char ***names, uint32_t *count, const char *json, size_t bytes, gp_error *err)
{
    gp_json *list;
    gp_status status = gp_json_parse(&list, json, bytes, err);

    if (status != GP_OK)
        return status;
    const uint32_t length = (uint32_t)gp_json_count(list);
    char **parsed = gp_calloc(length, sizeof(*parsed));

    if (parsed == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " class names", length);
    for (uint32_t i = 0; i < length && status == GP_OK; i++) {
        const char *name = gp_json_text(gp_json_element(list, i), NULL);

        if (name == NULL)
            status = gp_fail(err, GP_EINVAL, "class %" PRIu32 " is not a text", i + 1);
        else if ((parsed[i] = gp_strdup(name)) == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for class names");
    }
    gp_json_free(list);
    if (status != GP_OK) {
        gp_class_names_free(parsed, length);
        return status;
    }
    *names = parsed;
    *count = length;
    return GP_OK;
}

static gp_status read_classes(reading *r, gp_error *err)
{
    const char *text = metadata(r->model, GP_ONNX_KEY_CLASSES);

    if (text == NULL)
        return GP_OK;
    gp_status status = gp_class_names_parse(&r->class_names, &r->class_count, text, strlen(text), err);

    if (status != GP_OK)
        gp_error_prefix(err, GP_ONNX_KEY_CLASSES);
    else if (r->class_count != r->graph->class_count)
        status =
            gp_fail(err, GP_EINVAL,
                    GP_ONNX_KEY_CLASSES " must be a list of %" PRIu32
                                        " names, one per class; remove it from the metadata of the model",
                    r->graph->class_count);
    return status;
}

static gp_status read_model(reading *r, const void *data, size_t bytes, const gp_onnx_options *options,
                            gp_error *err)
{
    const size_t repeated_max =
        options == NULL || options->repeated_max == 0 ? REPEATED_MAX : options->repeated_max;
    int64_t opset = 0;
    gp_status status = gp_onnx_wire_check(data, bytes, err);

    if (status == GP_OK)
        status = unpack(&r->model, data, bytes, err);
    if (status == GP_OK)
        status = check_opset(r->model, &opset, err);
    if (status == GP_OK && r->model->graph->n_sparse_initializer != 0)
        status = gp_fail(err, GP_EUNSUPPORTED,
                         "the model has sparse initializers; only dense float32 ones are supported");
    if (status == GP_OK)
        status = gp_onnx_external_load(r->model->graph, options == NULL ? NULL : options->folder,
                                       &r->external_bytes, err);
    if (status != GP_OK)
        return status;
    gp_onnx_initializers_sort(r->model->graph);
    status = read_by_metadata(r, err);
    /* computed constants may need 40 MiB and 4 times the file, at most 256 MiB */
    const size_t least = (size_t)40 << 20, most = (size_t)1 << 28, given = bytes + r->external_bytes;

    r->store.bytes_max = given > (most - least) / 4 ? most : least + 4 * given;
    if (status == GP_OK && r->spec == NULL) {
        status = gp_onnx_map(&r->spec, &r->sources, &r->store, r->model->graph, opset,
                             options == NULL ? NULL : options->loss, err);
        if (status == GP_OK)
            status = gp_graph_new(&r->graph, r->spec, err);
    }
    if (status == GP_OK)
        status = read_blob(r, bytes, repeated_max, err);
    return status == GP_OK ? read_classes(r, err) : status;
}

gp_status gp_onnx_read(gp_netspec **spec, float **blob, char ***class_names, uint32_t *class_count,
                       const void *data, size_t bytes, const gp_onnx_options *options, gp_error *err)
{
    reading r = { 0 };
    gp_status status = read_model(&r, data, bytes, options, err);

    if (status == GP_OK) {
        *spec = r.spec;
        *blob = r.blob;
        *class_names = r.class_names;
        *class_count = r.class_count;
        r.spec = NULL;
        r.blob = NULL;
        r.class_names = NULL;
    }
    if (r.model != NULL)
        onnx__model_proto__free_unpacked(r.model,
                                         &(ProtobufCAllocator){ .alloc = allocate, .free = release });
    gp_class_names_free(r.class_names, r.class_count);
    gp_netspec_free(r.spec);
    gp_graph_free(r.graph);
    gp_free(r.sources);
    gp_onnx_store_deinit(&r.store);
    gp_free(r.blob);
    return status;
}
