/* onnx_write.c -- a network as an ONNX file: its draft, and the metadata that gives it back as it was. */
#include <inttypes.h>

#include "common/base/json.h"
#include "common/model/onnx.h"
#include "common/model/onnx_draft.h"

static gp_status pack_model(gp_buffer *buffer, Onnx__GraphProto *graph, int64_t version, const char *network,
                            const char *classes, gp_error *err)
{
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = { &opset };
    Onnx__StringStringEntryProto pair[2], *pairs[] = { &pair[0], &pair[1] };
    const char *const keys[] = { GP_ONNX_KEY_NETWORK, GP_ONNX_KEY_CLASSES };

    for (int i = 0; i < 2; i++) {
        onnx__string_string_entry_proto__init(&pair[i]);
        pair[i].key = gp_onnx_text(keys[i]);
        pair[i].value = gp_onnx_text(i == 0 ? network : classes);
    }
    opset.domain = gp_onnx_text("");
    opset.has_version = model.has_ir_version = true;
    opset.version = version;
    model.ir_version = ONNX__VERSION__IR_VERSION;
    model.producer_name = gp_onnx_text("gradpool");
    model.producer_version = gp_onnx_text(GP_VERSION);
    model.opset_import = opsets;
    model.n_opset_import = 1;
    model.graph = graph;
    model.metadata_props = pairs;
    model.n_metadata_props = classes == NULL ? 1 : 2;
    size_t bytes = onnx__model_proto__get_packed_size(&model);

    if (bytes > GP_ONNX_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the model has %zu bytes; an ONNX file ends at %zu (2 GiB)", bytes,
                       GP_ONNX_BYTES_MAX);
    gp_status status = gp_buffer_reserve(buffer, bytes, err);

    if (status != GP_OK)
        return status;
    onnx__model_proto__pack(&model, buffer->data + buffer->bytes);
    buffer->bytes += bytes;
    buffer->data[buffer->bytes] = '\0';
    return GP_OK;
}

static gp_status write_classes(gp_buffer *json, const char *const *names, uint32_t count, gp_error *err)
{
    gp_json_writer writer;

    gp_json_writer_init(&writer, json, false);
    gp_json_begin_array(&writer, NULL);
    for (uint32_t i = 0; i < count; i++)
        gp_json_put_text(&writer, NULL, names[i]);
    gp_json_end_array(&writer);
    return gp_json_writer_finish(&writer, err);
}

gp_status gp_onnx_write(gp_buffer *buffer, const gp_netspec *spec, const gp_graph *graph, const float *blob,
                        const char *const *class_names, uint32_t class_count, gp_error *err)
{
    gp_onnx_draft *draft = NULL;
    gp_buffer network, classes;
    gp_status status;

    if (class_count != 0 && class_count != graph->class_count)
        return gp_fail(err, GP_EINVAL, "%" PRIu32 " class names for a network of %" PRIu32 " classes",
                       class_count, graph->class_count);
    gp_buffer_init(&network, GP_NETSPEC_BYTES_MAX);
    gp_buffer_init(&classes, GP_JSON_BYTES_MAX);
    status = gp_netspec_to_json(spec, &network, false, err);
    if (status == GP_OK && class_count != 0)
        status = write_classes(&classes, class_names, class_count, err);
    if (status == GP_OK)
        status = gp_onnx_draft_new(&draft, spec, graph, blob, err);
    if (status == GP_OK)
        status = pack_model(buffer, gp_onnx_draft_graph(draft), draft->opset, gp_buffer_text(&network),
                            class_count == 0 ? NULL : gp_buffer_text(&classes), err);
    gp_onnx_draft_free(draft);
    gp_buffer_deinit(&network);
    gp_buffer_deinit(&classes);
    return status;
}
