/* onnx_layers.c -- operators that are one layer each: their attributes and constants become its settings. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/model/onnx_map.h"

/* "key=" and a number that reads back as itself. */
static void put_number(char *settings, size_t bytes, const char *key, double number)
{
    size_t used = strlen(settings);

    snprintf(settings + used, bytes - used, "%s%s=%.17g", used == 0 ? "" : ";", key, number);
}

gp_status gp_onnx_map_batchnorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_source *source = &m->sources[m->spec->layer_count];
    char settings[96] = "";
    float epsilon, momentum;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    for (size_t k = 0; k < 4 && status == GP_OK; k++) {
        status = gp_onnx_node_parameter(m, node, k + 1, 1, &source->tensors[k], err);
        if (status == GP_OK && source->tensors[k] == NULL)
            status = gp_fail(err, GP_ECORRUPT, "its scale, offset, mean or variance is missing");
    }
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "epsilon", 1e-5f, &epsilon, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "momentum", 0.9f, &momentum, err);
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "training_mode", 0, err);
    if (status != GP_OK)
        return status;
    put_number(settings, sizeof(settings), "epsilon", (double)epsilon);
    put_number(settings, sizeof(settings), "momentum", (double)(1.0f - momentum)); /* theirs: what stays */
    return gp_onnx_node_layer(m, node, "batchnorm", settings, &x, 1, err);
}

gp_status gp_onnx_map_global_pool(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool average = strcmp(node->op_type, "GlobalAveragePool") == 0;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    return status == GP_OK
               ? gp_onnx_node_layer(m, node, average ? "globalavgpool" : "globalmaxpool", NULL, &x, 1, err)
               : status;
}

/* An end of Clip: an attribute before opset 11, an input since; `fallback` when absent. */
static gp_status clip_end(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, const char *name,
                          float fallback, float *out, gp_error *err)
{
    const Onnx__TensorProto *tensor;
    gp_status status = gp_onnx_node_float(node, name, fallback, out, err);

    if (status == GP_OK)
        status = gp_onnx_node_constant(m, node, k, &tensor, err);
    if (status != GP_OK || tensor == NULL)
        return status;
    if (gp_onnx_count(tensor) != 1 || gp_onnx_floats(tensor) == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "its %s is not one float32 number", name);
    *out = gp_onnx_float_at(gp_onnx_floats(tensor), 0);
    return GP_OK;
}

gp_status gp_onnx_map_clip(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const double end = 3e38; /* as good as none */
    char settings[96] = "";
    float min, max;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = clip_end(m, node, 1, "min", -FLT_MAX, &min, err);
    if (status == GP_OK)
        status = clip_end(m, node, 2, "max", FLT_MAX, &max, err);
    if (status != GP_OK)
        return status;
    put_number(settings, sizeof(settings), "min", fmax((double)min, -end));
    put_number(settings, sizeof(settings), "max", fmin((double)max, end));
    return gp_onnx_node_layer(m, node, "clip", settings, &x, 1, err);
}

gp_status gp_onnx_map_leaky_relu(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    char settings[48] = "";
    float slope;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_float(node, "alpha", 0.01f, &slope, err);
    if (status != GP_OK)
        return status;
    put_number(settings, sizeof(settings), "slope", (double)slope);
    return gp_onnx_node_layer(m, node, "leakyrelu", settings, &x, 1, err);
}

/* A kind without settings that is called as its operator. */
gp_status gp_onnx_map_function(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const char *kind = NULL;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    for (size_t i = 0; gp_kinds[i] != NULL; i++)
        if (strcmp(gp_kinds[i]->onnx, node->op_type) == 0)
            kind = gp_kinds[i]->name;
    return status == GP_OK ? gp_onnx_node_layer(m, node, kind, NULL, &x, 1, err) : status;
}
