/* onnx_write.c -- write a network as an ONNX file: the draft, and the metadata from which
 * reading restores the network.
 *
 * protobuf is limited to 2 GiB. The weights of a larger model are written to a second file (ONNX
 * external data): the blob as it is in memory, with an offset for each tensor. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "common/model/onnx/onnx.h"
#include "common/model/onnx/onnx_draft.h"

/* Model to be packed. */
typedef struct packing {
    gp_onnx_draft *draft;
    gp_buffer network, classes; /* JSON texts */
    Onnx__ModelProto model;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    Onnx__StringStringEntryProto pair[2], *pairs[2];
} packing;

static void packing_fill(packing *p, bool has_classes)
{
    onnx__model_proto__init(&p->model);
    onnx__operator_set_id_proto__init(&p->opset);
    for (int i = 0; i < 2; i++) {
        onnx__string_string_entry_proto__init(&p->pair[i]);
        p->pairs[i] = &p->pair[i];
    }
    p->pair[0].key = gp_onnx_text(GP_ONNX_KEY_NETWORK);
    p->pair[0].value = gp_onnx_text(gp_buffer_text(&p->network));
    p->pair[1].key = gp_onnx_text(GP_ONNX_KEY_CLASSES);
    p->pair[1].value = gp_onnx_text(gp_buffer_text(&p->classes));
    p->opset.domain = gp_onnx_text("");
    p->opset.has_version = p->model.has_ir_version = true;
    p->opset.version = p->draft->opset;
    p->opsets[0] = &p->opset;
    p->model.ir_version = ONNX__VERSION__IR_VERSION;
    p->model.producer_name = gp_onnx_text("gradpool");
    p->model.producer_version = gp_onnx_text(GP_VERSION);
    p->model.opset_import = p->opsets;
    p->model.n_opset_import = 1;
    p->model.graph = gp_onnx_draft_graph(p->draft);
    p->model.metadata_props = p->pairs;
    p->model.n_metadata_props = has_classes ? 2 : 1;
}

static void packing_deinit(packing *p)
{
    gp_onnx_draft_free(p->draft);
    gp_buffer_deinit(&p->network);
    gp_buffer_deinit(&p->classes);
}

/* Prepare a model for packing. On failure nothing needs to be freed. */
static gp_status packing_init(packing *p, const gp_netspec *spec, const gp_graph *graph, const float *blob,
                              const char *const *class_names, uint32_t class_count, gp_error *err)
{
    gp_json_writer writer;
    gp_status status;

    if (class_count != 0 && class_count != graph->class_count)
        return gp_fail(err, GP_EINVAL, "%" PRIu32 " class names for a network of %" PRIu32 " classes",
                       class_count, graph->class_count);
    *p = (packing){ .draft = NULL };
    gp_buffer_init(&p->network, GP_NETSPEC_BYTES_MAX);
    gp_buffer_init(&p->classes, GP_JSON_BYTES_MAX);
    status = gp_netspec_to_json(spec, &p->network, false, err);
    if (status == GP_OK && class_count != 0) {
        gp_json_writer_init(&writer, &p->classes, false);
        gp_json_begin_array(&writer, NULL);
        for (uint32_t i = 0; i < class_count; i++)
            gp_json_put_text(&writer, NULL, class_names[i]);
        gp_json_end_array(&writer);
        status = gp_json_writer_finish(&writer, err);
    }
    if (status == GP_OK)
        status = gp_onnx_draft_new(&p->draft, spec, graph, blob, err);
    if (status == GP_OK)
        packing_fill(p, class_count != 0);
    else
        packing_deinit(p);
    return status;
}

/* Append the model to the buffer. */
static gp_status pack(const packing *p, gp_buffer *buffer, gp_error *err)
{
    size_t bytes = onnx__model_proto__get_packed_size(&p->model);

    if (bytes > GP_ONNX_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "the model has %zu bytes, but an ONNX file at most %zu (2 GiB); save it to a path, "
                       "which uses external data",
                       bytes, GP_ONNX_BYTES_MAX);
    gp_status status = gp_buffer_reserve(buffer, bytes, err);

    if (status != GP_OK)
        return status;
    onnx__model_proto__pack(&p->model, buffer->data + buffer->bytes);
    buffer->bytes += bytes;
    buffer->data[buffer->bytes] = '\0';
    return GP_OK;
}

gp_status gp_onnx_write(gp_buffer *buffer, const gp_netspec *spec, const gp_graph *graph, const float *blob,
                        const char *const *class_names, uint32_t class_count, gp_error *err)
{
    packing p;
    gp_status status = packing_init(&p, spec, graph, blob, class_names, class_count, err);

    if (status != GP_OK)
        return status;
    status = pack(&p, buffer, err);
    packing_deinit(&p);
    return status;
}

/* ---- files ---- */

/* Location of a tensor in the weight file. */
typedef struct external {
    Onnx__StringStringEntryProto entry[3], *list[3];
    char offset[24], bytes[24];
} external;

static void external_set(external *e, Onnx__TensorProto *tensor, const char *location, size_t offset)
{
    const char *const keys[] = { "location", "offset", "length" }, *const values[] = { location, e->offset,
                                                                                       e->bytes };

    snprintf(e->offset, sizeof(e->offset), "%zu", offset);
    snprintf(e->bytes, sizeof(e->bytes), "%zu", tensor->raw_data.len);
    for (int i = 0; i < 3; i++) {
        onnx__string_string_entry_proto__init(&e->entry[i]);
        e->entry[i].key = gp_onnx_text(keys[i]);
        e->entry[i].value = gp_onnx_text(values[i]);
        e->list[i] = &e->entry[i];
    }
    tensor->has_raw_data = false;
    tensor->external_data = e->list;
    tensor->n_external_data = 3;
    tensor->has_data_location = true;
    tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* Make all blob tensors refer to the file `location`. Free *out after packing. */
static gp_status externalize(external **out, const packing *p, const char *location, gp_error *err)
{
    const Onnx__GraphProto *graph = p->model.graph;
    const uint8_t *blob = (const uint8_t *)p->draft->blob;
    size_t blob_bytes = p->draft->graph->blob_count * sizeof(float);
    external *all = gp_calloc(graph->n_initializer + 1, sizeof(*all));

    if (all == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the offsets of %zu tensors", graph->n_initializer);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        Onnx__TensorProto *tensor = graph->initializer[i];

        if (tensor->has_raw_data && tensor->raw_data.data >= blob &&
            tensor->raw_data.data < blob + blob_bytes)
            external_set(&all[i], tensor, location, (size_t)(tensor->raw_data.data - blob));
    }
    *out = all;
    return GP_OK;
}

/* Write a complete temporary file and sync it. */
static gp_status draft_write(gp_file_draft *draft, const char *path, const void *data, size_t bytes,
                             gp_error *err)
{
    gp_status status = gp_file_draft_open(draft, path, err);

    if (status == GP_OK &&
        (!gp_write_all(draft->fd, data, bytes) || (fsync(draft->fd) != 0 && !draft->in_place)))
        status = gp_fail_errno(err, GP_EIO, "cannot write %zu bytes to %s", bytes, path);
    return status;
}

/* Replace the model and its weights. Both files are on disk before the old model is removed, so
 * that a full disk loses no model. The removal prevents a reader from combining the old model
 * with the new weights. */
static gp_status replace_both(const packing *p, const char *path, const char *data_path,
                              const gp_buffer *model, gp_error *err)
{
    gp_file_draft files[2] = { { .fd = -1 }, { .fd = -1 } };
    gp_status status =
        draft_write(&files[0], data_path, p->draft->blob, p->draft->graph->blob_count * sizeof(float), err);

    if (status == GP_OK)
        status = draft_write(&files[1], path, model->data, model->bytes, err);
    if (status == GP_OK && !files[1].in_place)
        unlink(files[1].path);
    for (int i = 0; i < 2 && status == GP_OK; i++)
        status = gp_file_draft_commit(&files[i], err);
    for (int i = 0; i < 2; i++)
        gp_file_draft_discard(&files[i]);
    return status;
}

static gp_status save(const packing *p, const char *path, bool apart, gp_error *err)
{
    const char *slash = strrchr(path, '/');
    char data_path[PATH_MAX];
    external *places = NULL;
    gp_buffer buffer;
    gp_status status = GP_OK;

    if ((size_t)snprintf(data_path, sizeof(data_path), "%s.data", path) >= sizeof(data_path))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", path);
    gp_buffer_init(&buffer, GP_ONNX_BYTES_MAX);
    if (apart)
        status = externalize(&places, p, slash == NULL ? data_path : data_path + (slash + 1 - path), err);
    if (status == GP_OK)
        status = pack(p, &buffer, err);
    if (status == GP_OK && apart)
        status = replace_both(p, path, data_path, &buffer, err);
    else if (status == GP_OK)
        status = gp_file_write(path, buffer.data, buffer.bytes, err);
    gp_buffer_deinit(&buffer);
    gp_free(places);
    return status;
}

gp_status gp_onnx_save(const char *path, const gp_netspec *spec, const gp_graph *graph, const float *blob,
                       const char *const *class_names, uint32_t class_count, size_t bytes_max, gp_error *err)
{
    packing p;
    gp_status status = packing_init(&p, spec, graph, blob, class_names, class_count, err);

    if (status != GP_OK)
        return status;
    status = save(
        &p, path,
        onnx__model_proto__get_packed_size(&p.model) > (bytes_max == 0 ? GP_ONNX_BYTES_MAX : bytes_max), err);
    packing_deinit(&p);
    return status;
}
