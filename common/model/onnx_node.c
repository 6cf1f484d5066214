/* onnx_node.c -- the accessors of onnx_node.h.  Whatever a message says of a foreign name goes through gp_onnx_show(). */
#include "common/model/onnx_node.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

/* ---- tensors ---- */

int64_t gp_onnx_count(const Onnx__TensorProto *tensor)
{
    int64_t count = 1;

    for (size_t i = 0; i < tensor->n_dims; i++)
        count *= tensor->dims[i]; /* bounded by gp_onnx_wire_check() */
    return count;
}

const void *gp_onnx_floats(const Onnx__TensorProto *tensor)
{
    const size_t count = (size_t)gp_onnx_count(tensor);

    if (tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        return NULL;
    if (tensor->has_raw_data)
        return tensor->raw_data.len == count * sizeof(float) ? tensor->raw_data.data : NULL;
    return tensor->n_float_data == count ? tensor->float_data : NULL;
}

float gp_onnx_float_at(const void *floats, int64_t index)
{
    float number; /* raw_data is aligned to nothing */

    memcpy(&number, (const char *)floats + index * (int64_t)sizeof(number), sizeof(number));
    return number;
}

bool gp_onnx_int64_at(const Onnx__TensorProto *tensor, int64_t index, int64_t *out)
{
    if (tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__INT64 || index >= gp_onnx_count(tensor))
        return false;
    if (tensor->has_raw_data)
        memcpy(out, tensor->raw_data.data + index * (int64_t)sizeof(*out), sizeof(*out));
    else
        *out = tensor->int64_data[index];
    return true;
}

/* ---- names ---- */

const char *gp_onnx_shown(char text[GP_ONNX_SHOWN_BYTES], const char *name)
{
    return gp_onnx_show(text, name == NULL ? "" : name, name == NULL ? 0 : strlen(name));
}

gp_status gp_onnx_node_failed(const gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_status status,
                              gp_error *err)
{
    char name[GP_ONNX_SHOWN_BYTES], type[GP_ONNX_SHOWN_BYTES];
    const char *called = node->name;

    if ((called == NULL || *called == '\0') && node->n_output > 0)
        called = node->output[0];
    gp_error_prefix(err, "node '%s' (%s, opset %" PRId64 ")", gp_onnx_shown(name, called),
                    gp_onnx_shown(type, node->op_type), m->opset);
    return status;
}

static int compare_values(const void *a, const void *b)
{
    return strcmp(((const gp_onnx_value *)a)->name, ((const gp_onnx_value *)b)->name);
}

gp_onnx_value *gp_onnx_value_find(const gp_onnx_mapping *m, const char *name)
{
    const gp_onnx_value key = { .name = name };

    return bsearch(&key, m->values, m->value_count, sizeof(key), compare_values);
}

static gp_status values_collect(gp_onnx_mapping *m, gp_error *err)
{
    const Onnx__GraphProto *graph = m->graph;
    size_t capacity = graph->n_initializer + 1;

    for (size_t n = 0; n < graph->n_node; n++)
        capacity += graph->node[n]->n_output;
    m->values = gp_calloc(capacity, sizeof(*m->values));
    if (m->values == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the names of %zu values", capacity);
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (graph->initializer[i]->name != NULL)
            m->values[m->value_count++] = (gp_onnx_value){ .name = graph->initializer[i]->name,
                                                           .role = GP_ONNX_VALUE_CONSTANT,
                                                           .tensor = graph->initializer[i] };
    for (size_t n = 0; n < graph->n_node; n++)
        for (size_t k = 0; k < graph->node[n]->n_output; k++)
            if (*graph->node[n]->output[k] != '\0')
                m->values[m->value_count++] = (gp_onnx_value){ .name = graph->node[n]->output[k] };
    return GP_OK;
}

gp_status gp_onnx_values_prepare(gp_onnx_mapping *m, const char *input, gp_error *err)
{
    const Onnx__GraphProto *graph = m->graph;
    gp_status status = values_collect(m, err);
    char text[GP_ONNX_SHOWN_BYTES];
    gp_onnx_value *found;

    if (status != GP_OK)
        return status;
    m->values[m->value_count++] =
        (gp_onnx_value){ .name = input, .role = GP_ONNX_VALUE_INPUT, .layer = GP_INPUT_LAYER };
    qsort(m->values, m->value_count, sizeof(*m->values), compare_values);
    for (size_t i = 1; i < m->value_count; i++)
        if (strcmp(m->values[i - 1].name, m->values[i].name) == 0)
            return gp_fail(err, GP_ECORRUPT, "the value '%s' is made twice; names of values must differ",
                           gp_onnx_shown(text, m->values[i].name));
    for (size_t n = 0; n < graph->n_node; n++)
        for (size_t k = 0; k < graph->node[n]->n_input; k++)
            if ((found = gp_onnx_value_find(m, graph->node[n]->input[k])) != NULL)
                found->uses++;
    for (size_t k = 0; k < graph->n_output; k++)
        if (graph->output[k]->name != NULL && (found = gp_onnx_value_find(m, graph->output[k]->name)) != NULL)
            found->uses++;
    return GP_OK;
}

gp_status gp_onnx_node_input(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                             gp_onnx_value **out, gp_error *err)
{
    char text[GP_ONNX_SHOWN_BYTES];

    *out = NULL;
    if (k >= node->n_input || *node->input[k] == '\0')
        return GP_OK;
    *out = gp_onnx_value_find(m, node->input[k]);
    if (*out == NULL || (*out)->role == GP_ONNX_VALUE_UNMADE)
        return gp_fail(err, GP_EINVAL, "it reads '%s', which neither the input nor a node before it gives",
                       gp_onnx_shown(text, node->input[k]));
    return GP_OK;
}

gp_status gp_onnx_node_data(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                            gp_onnx_value **out, gp_error *err)
{
    gp_status status = gp_onnx_node_input(m, node, k, out, err);

    if (status == GP_OK && (*out == NULL || (*out)->role == GP_ONNX_VALUE_CONSTANT))
        return gp_fail(err, GP_EUNSUPPORTED,
                       "input %zu is a constant; it must be the network's input or a layer", k + 1);
    return status;
}

gp_status gp_onnx_node_constant(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                                const Onnx__TensorProto **out, gp_error *err)
{
    char text[GP_ONNX_SHOWN_BYTES];
    gp_onnx_value *found;
    gp_status status = gp_onnx_node_input(m, node, k, &found, err);

    *out = NULL;
    if (status != GP_OK || found == NULL)
        return status;
    if (found->role != GP_ONNX_VALUE_CONSTANT)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "input %zu, '%s', is computed; it must be an initializer or a Constant", k + 1,
                       gp_onnx_shown(text, found->name));
    *out = found->tensor;
    return GP_OK;
}

gp_status gp_onnx_node_parameter(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, size_t rank,
                                 const Onnx__TensorProto **out, gp_error *err)
{
    char text[GP_ONNX_SHOWN_BYTES];
    gp_status status = gp_onnx_node_constant(m, node, k, out, err);

    if (status != GP_OK || *out == NULL)
        return status;
    if ((*out)->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT || gp_onnx_floats(*out) == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "'%s' is of ONNX type %" PRId32 "; float32 (type 1) is read",
                       gp_onnx_shown(text, (*out)->name), (*out)->data_type);
    if ((*out)->n_dims != rank)
        return gp_fail(err, GP_EUNSUPPORTED, "'%s' has %zu dimensions; here %zu are read",
                       gp_onnx_shown(text, (*out)->name), (*out)->n_dims, rank);
    return GP_OK;
}

/* ---- attributes ---- */

const Onnx__AttributeProto *gp_onnx_node_attribute(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->name != NULL && strcmp(node->attribute[i]->name, name) == 0)
            return node->attribute[i];
    return NULL;
}

gp_status gp_onnx_node_int(const Onnx__NodeProto *node, const char *name, int64_t fallback, int64_t *out,
                           gp_error *err)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(node, name);

    *out = attribute == NULL ? fallback : attribute->i;
    if (attribute != NULL && !attribute->has_i)
        return gp_fail(err, GP_ECORRUPT, "%s is not a whole number", name);
    return GP_OK;
}

gp_status gp_onnx_node_fixed_int(const Onnx__NodeProto *node, const char *name, int64_t only, gp_error *err)
{
    int64_t number;
    gp_status status = gp_onnx_node_int(node, name, only, &number, err);

    if (status == GP_OK && number != only)
        return gp_fail(err, GP_EUNSUPPORTED, "%s=%" PRId64 " is not supported; %" PRId64 " is", name, number,
                       only);
    return status;
}

gp_status gp_onnx_node_float(const Onnx__NodeProto *node, const char *name, float fallback, float *out,
                             gp_error *err)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(node, name);

    *out = attribute == NULL ? fallback : attribute->f;
    if (attribute != NULL && !attribute->has_f)
        return gp_fail(err, GP_ECORRUPT, "%s is not a number", name);
    return GP_OK;
}

gp_status gp_onnx_node_ints(const Onnx__NodeProto *node, const char *name, size_t count, int64_t fallback,
                            int64_t *out, gp_error *err)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(node, name);

    if (attribute != NULL && attribute->n_ints != count)
        return gp_fail(err, GP_EUNSUPPORTED, "%s has %zu numbers; %zu are read (height and width)", name,
                       attribute->n_ints, count);
    for (size_t i = 0; i < count; i++)
        out[i] = attribute == NULL ? fallback : attribute->ints[i];
    return GP_OK;
}
