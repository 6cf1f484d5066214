/* onnx_pattern.c -- nodes that together are one layer.
 *
 * Before opset 20 ONNX has no Gelu, and exporters write x / 2 * (1 + erf(x / sqrt(2))) as five nodes in one of three
 * orders. gp_onnx_patterns_find() looks for the nodes around each Erf. A value between them must have no other reader. The
 * last of the nodes becomes the layer, and the others are skipped. */
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/model/onnx_map.h"

static bool is_op(const Onnx__NodeProto *node, const char *type)
{
    return node != NULL && node->op_type != NULL && strcmp(node->op_type, type) == 0 && node->n_output >= 1;
}

static const Onnx__NodeProto *node_of(const gp_onnx_mapping *m, uint32_t index)
{
    return index == 0 ? NULL : m->graph->node[index - 1];
}

/* Return the node that makes a value; NULL: no node does, or the value has several readers. */
static const Onnx__NodeProto *maker_of(const gp_onnx_mapping *m, const char *name)
{
    const gp_onnx_value *value = gp_onnx_value_find(m, name);

    return value == NULL || value->uses != 1 ? NULL : node_of(m, value->maker);
}

/* Return the only reader of a node's output; NULL: there are several, or it is an output of the graph. */
static const Onnx__NodeProto *reader_of(const gp_onnx_mapping *m, const Onnx__NodeProto *node)
{
    const gp_onnx_value *value = gp_onnx_value_find(m, node->output[0]);

    return value == NULL || value->uses != 1 ? NULL : node_of(m, value->reader);
}

static bool is_number(const gp_onnx_mapping *m, const char *name, double number)
{
    const gp_onnx_value *value = gp_onnx_value_find(m, name);

    return value != NULL && value->role == GP_ONNX_VALUE_CONSTANT && value->tensor->data != NULL &&
           value->tensor->count == 1 && gp_onnx_is_float(value->tensor) &&
           fabs(gp_onnx_real_at(value->tensor, 0) - number) <= 1e-4 * number;
}

/* Return the other operand of a node of that type that has a number as one operand; NULL: the node is another. */
static const char *operand_beside(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *type,
                                  double number)
{
    if (!is_op(node, type) || node->n_input != 2)
        return NULL;
    if (is_number(m, node->input[1], number))
        return node->input[0];
    return *type != 'D' && is_number(m, node->input[0], number) ? node->input[1] : NULL;
}

/* The same with a value as the known operand. */
static const char *operand_beside_value(const Onnx__NodeProto *node, const char *type, const char *name)
{
    if (!is_op(node, type) || node->n_input != 2)
        return NULL;
    if (strcmp(node->input[0], name) == 0)
        return node->input[1];
    return strcmp(node->input[1], name) == 0 ? node->input[0] : NULL;
}

static void mark(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *gelu_of)
{
    for (size_t n = 0; n < m->graph->n_node; n++)
        if (m->graph->node[n] == node)
            m->fusions[n] = (gp_onnx_fusion){ .skipped = gelu_of == NULL, .gelu_of = gelu_of };
}

static void match_gelu(gp_onnx_mapping *m, const Onnx__NodeProto *erf)
{
    const Onnx__NodeProto *divide = erf->n_input == 1 ? maker_of(m, erf->input[0]) : NULL, *half, *last;
    const char *x = operand_beside(m, divide, "Div", sqrt(2.0)), *other;

    if (x == NULL)
        x = operand_beside(m, divide, "Mul", sqrt(0.5));
    const Onnx__NodeProto *one = x == NULL ? NULL : reader_of(m, erf);

    if (operand_beside(m, one, "Add", 1.0) == NULL)
        return;
    half = last = reader_of(m, one);
    other = operand_beside_value(last, "Mul", one->output[0]);
    if (other == NULL)
        return;
    if (strcmp(other, x) == 0) { /* (x * (1 + erf)) * 1/2 */
        last = reader_of(m, half);
        if (operand_beside(m, last, "Mul", 0.5) == NULL)
            return;
    } else if (is_number(m, other, 0.5)) { /* x * ((1 + erf) * 1/2) */
        last = reader_of(m, half);
        other = operand_beside_value(last, "Mul", half->output[0]);
        if (other == NULL || strcmp(other, x) != 0)
            return;
    } else { /* (x * 1/2) * (1 + erf) */
        half = maker_of(m, other);
        other = operand_beside(m, half, "Mul", 0.5);
        if (other == NULL || strcmp(other, x) != 0)
            return;
    }
    mark(m, divide, NULL);
    mark(m, erf, NULL);
    mark(m, one, NULL);
    mark(m, half, NULL);
    mark(m, last, x);
}

gp_status gp_onnx_patterns_find(gp_onnx_mapping *m, gp_error *err)
{
    const Onnx__GraphProto *graph = m->graph;
    gp_onnx_value *value;

    m->fusions = gp_calloc(graph->n_node, sizeof(*m->fusions));
    if (m->fusions == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a model of %zu nodes", graph->n_node);
    for (size_t n = 0; n < graph->n_node; n++) {
        for (size_t k = 0; k < graph->node[n]->n_output; k++)
            if ((value = gp_onnx_value_find(m, graph->node[n]->output[k])) != NULL)
                value->maker = (uint32_t)n + 1;
        for (size_t k = 0; k < graph->node[n]->n_input; k++)
            if ((value = gp_onnx_value_find(m, graph->node[n]->input[k])) != NULL)
                value->reader = (uint32_t)n + 1;
    }
    for (size_t n = 0; n < graph->n_node; n++)
        if (is_op(graph->node[n], "Erf"))
            match_gelu(m, graph->node[n]);
    return GP_OK;
}
