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

static void values_collect(gp_onnx_mapping *m)
{
    const Onnx__GraphProto *graph = m->graph;
    size_t capacity = graph->n_initializer + GP_INPUTS_MAX;

    for (size_t n = 0; n < graph->n_node; n++)
        capacity += graph->node[n]->n_output;
    m->values = gp_calloc(capacity, sizeof(*m->values));
    m->constants = gp_calloc(graph->n_initializer, sizeof(*m->constants));
    if (m->values == NULL || m->constants == NULL) {
        gp_onnx_fail(m, GP_ENOMEM, "no memory for the names of %zu values", capacity);
        return;
    }
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
}

/* Read the dimensions of a network input. Return the number of samples; 0: symbolic. */
static int64_t input_read(gp_onnx_mapping *m, gp_onnx_value *input, const Onnx__ValueInfoProto *info)
{
    const Onnx__TypeProto *type = info->type;
    const Onnx__TypeProto__Tensor *tensor =
        type != NULL && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type : NULL;
    char text[GP_ONNX_SHOWN_BYTES];
    int64_t batch = 0;

    gp_onnx_shown(text, info->name);
    if (tensor == NULL || tensor->elem_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT ||
        tensor->shape == NULL || tensor->shape->n_dim < 2 || tensor->shape->n_dim > 4) {
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "the input '%s' must be float32 with shape [N, C, H, W], [N, C, L] or [N, F]", text);
        return 0;
    }
    *input = (gp_onnx_value){ .name = info->name,
                              .role = GP_ONNX_VALUE_INPUT,
                              .layer = GP_INPUT_LAYER,
                              .rank = (uint32_t)tensor->shape->n_dim - 1 };
    for (size_t i = 0; i < tensor->shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = tensor->shape->dim[i];
        bool known = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;

        if (i == 0)
            batch = known && dim->dim_value > 0 ? dim->dim_value : 0;
        else if (!known)
            gp_onnx_fail(
                m, GP_EUNSUPPORTED,
                "dimension %zu of the input '%s' is undefined; channels, height and width must be numbers",
                i + 1, text);
        else if (dim->dim_value < 1)
            gp_onnx_fail(m, GP_EINVAL, "dimension %zu of the input '%s' is %" PRId64, i + 1, text,
                         dim->dim_value);
        else
            input->dims[i - 1] = dim->dim_value;
    }
    return batch;
}

size_t gp_onnx_inputs(gp_onnx_mapping *m, gp_onnx_value inputs[GP_INPUTS_MAX])
{
    const Onnx__GraphProto *graph = m->graph;
    size_t count = 0;

    for (size_t i = 0; i < graph->n_input && m->status == GP_OK; i++) {
        const char *name = graph->input[i]->name;

        if (name == NULL || gp_onnx_initializer_find(graph, name) != NULL)
            continue; /* before IR version 4, initializers are inputs too */
        if (count == GP_INPUTS_MAX) {
            gp_onnx_fail(m, GP_EUNSUPPORTED, "the model has more than %d inputs", GP_INPUTS_MAX);
            break;
        }
        const int64_t samples = input_read(m, &inputs[count], graph->input[i]);

        m->batch = count == 0 || m->batch == samples ? samples : 0;
        count++;
    }
    if (count == 0)
        gp_onnx_fail(m, GP_EINVAL, "the model has no input");
    return count;
}

void gp_onnx_values_prepare(gp_onnx_mapping *m, const gp_onnx_value *inputs, size_t count)
{
    const Onnx__GraphProto *graph = m->graph;
    char text[GP_ONNX_SHOWN_BYTES];
    gp_onnx_value *found;

    values_collect(m);
    if (m->status != GP_OK)
        return;
    for (size_t i = 0; i < count; i++)
        m->values[m->value_count++] = inputs[i];
    qsort(m->values, m->value_count, sizeof(*m->values), compare_values);
    for (size_t i = 1; i < m->value_count; i++)
        if (strcmp(m->values[i - 1].name, m->values[i].name) == 0)
            gp_onnx_fail(m, GP_ECORRUPT, "the value '%s' is computed twice; names of values must be unique",
                         gp_onnx_shown(text, m->values[i].name));
    for (size_t n = 0; n < graph->n_node; n++)
        for (size_t k = 0; k < graph->node[n]->n_input; k++)
            if ((found = gp_onnx_value_find(m, graph->node[n]->input[k])) != NULL)
                found->uses++;
    for (size_t k = 0; k < graph->n_output; k++)
        if (graph->output[k]->name != NULL && (found = gp_onnx_value_find(m, graph->output[k]->name)) != NULL)
            found->uses++;
}

gp_onnx_value *gp_onnx_node_input(gp_onnx_mapping *m, size_t k)
{
    char text[GP_ONNX_SHOWN_BYTES];

    if (m->status != GP_OK || k >= m->node->n_input || *m->node->input[k] == '\0')
        return NULL;
    gp_onnx_value *found = gp_onnx_value_find(m, m->node->input[k]);

    if (found != NULL && found->role != GP_ONNX_VALUE_UNMADE)
        return found;
    gp_onnx_fail(m, GP_EINVAL,
                 "it reads '%s', which is not an input, an output of an earlier node or a weight",
                 gp_onnx_shown(text, m->node->input[k]));
    return NULL;
}

gp_onnx_value *gp_onnx_node_any(gp_onnx_mapping *m, size_t k)
{
    gp_onnx_value *found = gp_onnx_node_input(m, k);

    if (found != NULL && (found->role == GP_ONNX_VALUE_INPUT || found->role == GP_ONNX_VALUE_LAYER))
        return found;
    gp_onnx_fail(m, GP_EUNSUPPORTED, "input %zu is a constant, but must be the network's input or a layer",
                 k + 1);
    return &m->none;
}

const gp_onnx_tensor *gp_onnx_node_constant(gp_onnx_mapping *m, size_t k)
{
    char text[GP_ONNX_SHOWN_BYTES];
    const gp_onnx_value *found = gp_onnx_node_input(m, k);

    if (found == NULL)
        return NULL;
    gp_onnx_shown(text, found->name);
    if (found->role != GP_ONNX_VALUE_CONSTANT)
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "input %zu, '%s', depends on the network's input, but must be constant", k + 1, text);
    else if (found->tensor->data == NULL)
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "'%s' has ONNX type %" PRId32
                     "; must be float32 (type 1), float64, int64, int32 or bool",
                     text, found->tensor->type);
    return m->status == GP_OK ? found->tensor : NULL;
}

double gp_onnx_node_scalar(gp_onnx_mapping *m, size_t k, const char *name, double fallback)
{
    const gp_onnx_tensor *tensor = gp_onnx_node_constant(m, k);

    if (tensor != NULL && (tensor->count != 1 || !gp_onnx_is_float(tensor)))
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its %s must be one float32 number", name);
    return tensor == NULL || m->status != GP_OK ? fallback : gp_onnx_real_at(tensor, 0);
}

gp_onnx_tensor gp_onnx_node_parameter(gp_onnx_mapping *m, size_t k, size_t rank)
{
    const gp_onnx_tensor *tensor = gp_onnx_node_constant(m, k);
    char text[GP_ONNX_SHOWN_BYTES];

    if (tensor == NULL)
        return (gp_onnx_tensor){ 0 };
    gp_onnx_shown(text, m->node->input[k]);
    if (!gp_onnx_is_float(tensor))
        gp_onnx_fail(m, GP_EUNSUPPORTED, "'%s' has type %s; must be float32", text,
                     gp_onnx_type_name(tensor->type));
    if (tensor->rank != rank)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "'%s' has %" PRIu32 " dimensions; must have %zu", text, tensor->rank,
                     rank);
    gp_onnx_tensor parameter = *tensor;

    parameter.name = m->node->input[k];
    return parameter;
}

void gp_onnx_node_slices(gp_onnx_mapping *m, gp_onnx_slices *out)
{
    out->count = gp_onnx_node_list(m, 1, "starts", out->starts);
    const size_t end_count = gp_onnx_node_list(m, 2, "ends", out->ends);
    const size_t axis_count = gp_onnx_node_list(m, 3, "axes", out->axes);
    const size_t step_count = gp_onnx_node_list(m, 4, "steps", out->steps);

    if (out->count != end_count || (axis_count != 0 && axis_count != out->count) ||
        (step_count != 0 && step_count != out->count))
        gp_onnx_fail(m, GP_ECORRUPT, "its starts, ends, axes and steps have different sizes");
    for (size_t i = axis_count; i < out->count; i++)
        out->axes[i] = (int64_t)i;
    for (size_t i = step_count; i < out->count; i++)
        out->steps[i] = 1;
}

size_t gp_onnx_node_dims(gp_onnx_mapping *m, size_t k, const char *name, int64_t list[GP_ONNX_LIST_MAX])
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(m, name);
    const gp_onnx_tensor *tensor = gp_onnx_node_constant(m, k);
    const size_t count = tensor != NULL ? (size_t)tensor->count : attribute != NULL ? attribute->n_ints : 0;

    if (tensor != NULL && !gp_onnx_is_whole(tensor))
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its %s must be int64 numbers", name);
    if (count > GP_ONNX_LIST_MAX)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its %s has %zu numbers; must have %d", name, count,
                     GP_ONNX_LIST_MAX);
    for (size_t i = 0; i < count && m->status == GP_OK; i++) {
        list[i] = tensor == NULL ? attribute->ints[i] : gp_onnx_int_at(tensor, (int64_t)i);
        if (i > 0 && list[i] == GP_ONNX_SAMPLES)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "its %s has the number of samples at position %zu", name, i + 1);
    }
    return m->status == GP_OK ? count : 0;
}

size_t gp_onnx_node_list(gp_onnx_mapping *m, size_t k, const char *name, int64_t list[GP_ONNX_LIST_MAX])
{
    const size_t count = gp_onnx_node_dims(m, k, name, list);

    if (count == 0 || list[0] != GP_ONNX_SAMPLES)
        return count;
    gp_onnx_fail(m, GP_EUNSUPPORTED, "its %s depend on the number of samples", name);
    return 0;
}

/* ---- attributes ---- */

const Onnx__AttributeProto *gp_onnx_node_attribute(const gp_onnx_mapping *m, const char *name)
{
    for (size_t i = 0; i < m->node->n_attribute; i++)
        if (m->node->attribute[i]->name != NULL && strcmp(m->node->attribute[i]->name, name) == 0)
            return m->node->attribute[i];
    return NULL;
}

int64_t gp_onnx_node_int(gp_onnx_mapping *m, const char *name, int64_t fallback)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(m, name);

    if (attribute != NULL && !attribute->has_i)
        gp_onnx_fail(m, GP_ECORRUPT, "%s is not a whole number", name);
    return attribute == NULL ? fallback : attribute->i;
}

void gp_onnx_node_fixed_int(gp_onnx_mapping *m, const char *name, int64_t only)
{
    const int64_t number = gp_onnx_node_int(m, name, only);

    if (number != only)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "%s=%" PRId64 " is not supported; must be %" PRId64, name, number,
                     only);
}

double gp_onnx_node_float(gp_onnx_mapping *m, const char *name, float fallback)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(m, name);

    if (attribute != NULL && !attribute->has_f)
        gp_onnx_fail(m, GP_ECORRUPT, "%s is not a number", name);
    return (double)(attribute == NULL ? fallback : attribute->f);
}

void gp_onnx_node_ints(gp_onnx_mapping *m, const char *name, size_t count, int64_t fallback, int64_t *out)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(m, name);

    if (attribute != NULL && attribute->n_ints != count) {
        gp_onnx_fail(m, GP_EUNSUPPORTED, "%s has %zu numbers; must have %zu (height and width)", name,
                     attribute->n_ints, count);
        attribute = NULL;
    }
    for (size_t i = 0; i < count; i++)
        out[i] = attribute == NULL ? fallback : attribute->ints[i];
}

bool gp_onnx_node_attribute_is(const gp_onnx_mapping *m, const char *name, const char *fallback,
                               const char *word)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(m, name);

    if (attribute == NULL)
        return strcmp(fallback, word) == 0;
    return attribute->s.len == strlen(word) && memcmp(attribute->s.data, word, attribute->s.len) == 0;
}
