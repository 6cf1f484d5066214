/* onnx_node.c -- the accessors declared in onnx_node.h. Error messages pass every name from a
 * file through gp_onnx_show(). */
#include "common/model/onnx/onnx_node.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"

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

static int compare_names(const void *a, const void *b)
{
    const Onnx__TensorProto *const *x = a, *const *y = b;

    return strcmp((*x)->name == NULL ? "" : (*x)->name, (*y)->name == NULL ? "" : (*y)->name);
}

void gp_onnx_initializers_sort(Onnx__GraphProto *graph)
{
    if (graph->n_initializer > 0) /* qsort must not get a NULL array */
        qsort(graph->initializer, graph->n_initializer, sizeof(Onnx__TensorProto *), compare_names);
}

const Onnx__TensorProto *gp_onnx_initializer_find(const Onnx__GraphProto *graph, const char *name)
{
    const Onnx__TensorProto key = { .name = (char *)(uintptr_t)name }, *wanted = &key;
    Onnx__TensorProto **found =
        graph->n_initializer == 0
            ? NULL
            : bsearch(&wanted, graph->initializer, graph->n_initializer, sizeof(*found), compare_names);

    return found == NULL ? NULL : *found;
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
    size_t capacity = graph->n_initializer + GP_INPUTS_MAX;

    for (size_t n = 0; n < graph->n_node; n++)
        capacity += graph->node[n]->n_output;
    m->values = gp_calloc(capacity, sizeof(*m->values));
    m->constants = gp_calloc(graph->n_initializer, sizeof(*m->constants));
    if (m->values == NULL || m->constants == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the names of %zu values", capacity);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *proto = graph->initializer[i];
        gp_onnx_tensor *tensor = &m->constants[i];

        if (proto->name == NULL)
            continue;

        /* the error is reported when the tensor is read */
        if (gp_onnx_tensor_of(tensor, proto, NULL) != GP_OK)
            *tensor = (gp_onnx_tensor){ .name = proto->name, .type = proto->data_type };
        m->values[m->value_count++] =
            (gp_onnx_value){ .name = proto->name, .role = GP_ONNX_VALUE_CONSTANT, .tensor = tensor };
    }
    for (size_t n = 0; n < graph->n_node; n++)
        for (size_t k = 0; k < graph->node[n]->n_output; k++)
            if (*graph->node[n]->output[k] != '\0')
                m->values[m->value_count++] = (gp_onnx_value){ .name = graph->node[n]->output[k] };
    return GP_OK;
}

/* Read the dimensions of a network input. *batch 0: the sample dimension is symbolic. */
static gp_status input_read(gp_onnx_value *input, int64_t *batch, const Onnx__ValueInfoProto *info,
                            gp_error *err)
{
    const Onnx__TypeProto *type = info->type;
    const Onnx__TypeProto__Tensor *tensor =
        type != NULL && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type : NULL;
    char text[GP_ONNX_SHOWN_BYTES];

    if (tensor == NULL || tensor->elem_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT ||
        tensor->shape == NULL || tensor->shape->n_dim < 2 || tensor->shape->n_dim > 4)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "the input '%s' is not float32 of shape [N, C, H, W], [N, C, L] or [N, F]",
                       gp_onnx_shown(text, info->name));
    *input = (gp_onnx_value){ .name = info->name,
                              .role = GP_ONNX_VALUE_INPUT,
                              .layer = GP_INPUT_LAYER,
                              .rank = (uint32_t)tensor->shape->n_dim - 1 };
    for (size_t i = 0; i < tensor->shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = tensor->shape->dim[i];
        bool known = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;

        if (i == 0)
            *batch = known && dim->dim_value > 0 ? dim->dim_value : 0;
        else if (known && dim->dim_value < 1)
            return gp_fail(err, GP_EINVAL, "dimension %zu of the input '%s' is %" PRId64, i + 1,
                           gp_onnx_shown(text, info->name), dim->dim_value);
        else if (known)
            input->dims[i - 1] = dim->dim_value;
        else
            return gp_fail(
                err, GP_EUNSUPPORTED,
                "dimension %zu of the input '%s' is open; channels, height and width must be numbers", i + 1,
                gp_onnx_shown(text, info->name));
    }
    return GP_OK;
}

gp_status gp_onnx_inputs(gp_onnx_value inputs[GP_INPUTS_MAX], size_t *count, int64_t *batch,
                         const Onnx__GraphProto *graph, gp_error *err)
{
    int64_t samples = 0;

    *count = 0;
    *batch = 0;
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = graph->input[i]->name;

        if (name == NULL || gp_onnx_initializer_find(graph, name) != NULL)
            continue; /* before IR version 4, initializers are inputs too */
        if (*count == GP_INPUTS_MAX)
            return gp_fail(err, GP_EUNSUPPORTED, "the model has over %d inputs", GP_INPUTS_MAX);
        gp_status status = input_read(&inputs[*count], &samples, graph->input[i], err);

        if (status != GP_OK)
            return status;
        *batch = *count == 0 || *batch == samples ? samples : 0;
        (*count)++;
    }
    return *count > 0 ? GP_OK : gp_fail(err, GP_EINVAL, "the model has no input");
}

gp_status gp_onnx_values_prepare(gp_onnx_mapping *m, const gp_onnx_value *inputs, size_t count, gp_error *err)
{
    const Onnx__GraphProto *graph = m->graph;
    gp_status status = values_collect(m, err);
    char text[GP_ONNX_SHOWN_BYTES];
    gp_onnx_value *found;

    if (status != GP_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        m->values[m->value_count++] = inputs[i];
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
        return gp_fail(err, GP_EINVAL,
                       "it reads '%s', which is neither the input, nor a node's before it, nor a weight that "
                       "the file has",
                       gp_onnx_shown(text, node->input[k]));
    return GP_OK;
}

gp_status gp_onnx_node_any(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                           gp_onnx_value **out, gp_error *err)
{
    gp_status status = gp_onnx_node_input(m, node, k, out, err);

    if (status == GP_OK &&
        (*out == NULL || ((*out)->role != GP_ONNX_VALUE_INPUT && (*out)->role != GP_ONNX_VALUE_LAYER)))
        return gp_fail(err, GP_EUNSUPPORTED,
                       "input %zu is a constant; it must be the network's input or a layer", k + 1);
    return status;
}

gp_status gp_onnx_node_constant(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                                const gp_onnx_tensor **out, gp_error *err)
{
    char text[GP_ONNX_SHOWN_BYTES];
    gp_onnx_value *found;
    gp_status status = gp_onnx_node_input(m, node, k, &found, err);

    *out = NULL;
    if (status != GP_OK || found == NULL)
        return status;
    if (found->role != GP_ONNX_VALUE_CONSTANT)
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "input %zu, '%s', depends on the network's input; it must be an initializer or computed of "
            "constants",
            k + 1, gp_onnx_shown(text, found->name));
    if (found->tensor->data == NULL)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "'%s' is of ONNX type %" PRId32
                       "; float32 (type 1), float64, int64, int32 and bool are read",
                       gp_onnx_shown(text, found->name), found->tensor->type);
    *out = found->tensor;
    return GP_OK;
}

gp_status gp_onnx_node_scalar(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                              const char *name, float *out, gp_error *err)
{
    const gp_onnx_tensor *tensor;
    gp_status status = gp_onnx_node_constant(m, node, k, &tensor, err);

    if (status != GP_OK || tensor == NULL)
        return status;
    if (tensor->count != 1 || !gp_onnx_is_float(tensor))
        return gp_fail(err, GP_EUNSUPPORTED, "its %s is not one float32 number", name);
    *out = (float)gp_onnx_real_at(tensor, 0);
    return GP_OK;
}

gp_status gp_onnx_node_parameter(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, size_t rank,
                                 gp_onnx_tensor *out, gp_error *err)
{
    const gp_onnx_tensor *tensor;
    char text[GP_ONNX_SHOWN_BYTES];
    gp_status status = gp_onnx_node_constant(m, node, k, &tensor, err);

    *out = (gp_onnx_tensor){ 0 };
    if (status != GP_OK || tensor == NULL)
        return status;
    if (!gp_onnx_is_float(tensor))
        return gp_fail(err, GP_EUNSUPPORTED, "'%s' is of type %s; float32 is read",
                       gp_onnx_shown(text, node->input[k]), gp_onnx_type_name(tensor->type));
    if (tensor->rank != rank)
        return gp_fail(err, GP_EUNSUPPORTED, "'%s' has %" PRIu32 " dimensions; here %zu are read",
                       gp_onnx_shown(text, node->input[k]), tensor->rank, rank);
    *out = *tensor;
    out->name = node->input[k];
    return GP_OK;
}

gp_status gp_onnx_node_slices(const gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_slices *out,
                              gp_error *err)
{
    size_t end_count = 0, axis_count = 0, step_count = 0;
    gp_status status = gp_onnx_node_list(m, node, 1, "starts", out->starts, &out->count, err);

    if (status == GP_OK)
        status = gp_onnx_node_list(m, node, 2, "ends", out->ends, &end_count, err);
    if (status == GP_OK)
        status = gp_onnx_node_list(m, node, 3, "axes", out->axes, &axis_count, err);
    if (status == GP_OK)
        status = gp_onnx_node_list(m, node, 4, "steps", out->steps, &step_count, err);
    if (status != GP_OK)
        return status;
    if (out->count != end_count || (axis_count != 0 && axis_count != out->count) ||
        (step_count != 0 && step_count != out->count))
        return gp_fail(err, GP_ECORRUPT, "its starts, ends, axes and steps are not as many");
    for (size_t i = axis_count; i < out->count; i++)
        out->axes[i] = (int64_t)i;
    for (size_t i = step_count; i < out->count; i++)
        out->steps[i] = 1;
    return GP_OK;
}

gp_status gp_onnx_node_dims(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, const char *name,
                            int64_t list[GP_ONNX_LIST_MAX], size_t *count, gp_error *err)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(node, name);
    const gp_onnx_tensor *tensor;
    gp_status status = gp_onnx_node_constant(m, node, k, &tensor, err);

    if (status != GP_OK)
        return status;
    if (tensor != NULL && !gp_onnx_is_whole(tensor))
        return gp_fail(err, GP_EUNSUPPORTED, "its %s are not int64 numbers", name);
    *count = tensor != NULL ? (size_t)tensor->count : attribute != NULL ? attribute->n_ints : 0;
    if (*count > GP_ONNX_LIST_MAX)
        return gp_fail(err, GP_EUNSUPPORTED, "its %s are %zu numbers; %d are read", name, *count,
                       GP_ONNX_LIST_MAX);
    for (size_t i = 0; i < *count; i++)
        list[i] = tensor == NULL ? attribute->ints[i] : gp_onnx_int_at(tensor, (int64_t)i);
    for (size_t i = 1; i < *count; i++)
        if (list[i] == GP_ONNX_SAMPLES)
            return gp_fail(err, GP_EUNSUPPORTED, "its %s have the number of samples at place %zu", name,
                           i + 1);
    return GP_OK;
}

gp_status gp_onnx_node_list(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, const char *name,
                            int64_t list[GP_ONNX_LIST_MAX], size_t *count, gp_error *err)
{
    gp_status status = gp_onnx_node_dims(m, node, k, name, list, count, err);

    if (status == GP_OK && *count > 0 && list[0] == GP_ONNX_SAMPLES)
        return gp_fail(err, GP_EUNSUPPORTED, "its %s depend on the number of samples", name);
    return status;
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

bool gp_onnx_node_says(const Onnx__NodeProto *node, const char *name, const char *fallback, const char *word)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(node, name);

    if (attribute == NULL)
        return strcmp(fallback, word) == 0;
    return attribute->s.len == strlen(word) && memcmp(attribute->s.data, word, attribute->s.len) == 0;
}
