/* onnx_pattern.c -- groups of nodes that implement one operator.
 *
 * Before opset 20 ONNX has no Gelu, and exporters write x / 2 * (1 + erf(x / sqrt(2))) as five
 * nodes in one of three orders. Before opset 17 it has no LayerNormalization, which is written
 * as nine nodes: with d = x - mean(x) it is d / sqrt(mean(d^2) + epsilon) * scale + offset.
 * gp_onnx_patterns_find() examines the nodes around each Erf and Sqrt. A value inside a pattern
 * must have no other reader. The last node is mapped as the operator, and the others are
 * skipped. */
#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/model/onnx/onnx_map.h"

static bool is_op(const Onnx__NodeProto *node, const char *type)
{
    return node != NULL && node->op_type != NULL && strcmp(node->op_type, type) == 0 && node->n_output >= 1;
}

static const Onnx__NodeProto *node_of(const gp_onnx_mapping *m, uint32_t index)
{
    return index == 0 ? NULL : m->graph->node[index - 1];
}

/* Return the node that makes a value. NULL: none, or the value has several readers. */
static const Onnx__NodeProto *maker_of(const gp_onnx_mapping *m, const char *name)
{
    const gp_onnx_value *value = gp_onnx_value_find(m, name);

    return value == NULL || value->uses != 1 ? NULL : node_of(m, value->maker);
}

/* Return the only reader of a node's output. NULL: there are several, or it is a graph output. */
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

/* Return the other operand of a node with this type and this number as one operand. NULL: no
 * match. */
static const char *operand_beside(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *type,
                                  double number)
{
    if (!is_op(node, type) || node->n_input != 2)
        return NULL;
    if (is_number(m, node->input[1], number))
        return node->input[0];
    return *type != 'D' && is_number(m, node->input[0], number) ? node->input[1] : NULL;
}

/* Return the other operand of a node with this type and this value as one operand. NULL: no
 * match. */
static const char *operand_beside_value(const Onnx__NodeProto *node, const char *type, const char *name)
{
    if (!is_op(node, type) || node->n_input != 2)
        return NULL;
    if (strcmp(node->input[0], name) == 0)
        return node->input[1];
    return strcmp(node->input[1], name) == 0 ? node->input[0] : NULL;
}

static void mark(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_fusion *fusion)
{
    for (size_t n = 0; n < m->graph->n_node; n++)
        if (m->graph->node[n] == node)
            m->fusions[n] = *fusion;
}

static void mark_skipped(gp_onnx_mapping *m, const Onnx__NodeProto *const *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mark(m, nodes[i], &(gp_onnx_fusion){ .skipped = true });
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
    mark_skipped(m, (const Onnx__NodeProto *[]){ divide, erf, one, half }, 4);
    mark(m, last, &(gp_onnx_fusion){ .op_type = "Gelu", .inputs = { x } });
}

/* Return whether a node is the mean of this value over the last axis, with keepdims. */
static bool is_last_mean(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *of)
{
    gp_onnx_mapping probe = *m; /* a failed probe does not fail the conversion */
    int64_t axes[GP_ONNX_LIST_MAX];

    probe.node = node;
    probe.err = NULL;
    return is_op(node, "ReduceMean") && node->n_input >= 1 && strcmp(node->input[0], of) == 0 &&
           gp_onnx_node_list(&probe, 1, "axes", axes) == 1 && axes[0] == -1 &&
           gp_onnx_node_int(&probe, "keepdims", 1) == 1 && probe.status == GP_OK;
}

/* Return the value that a node squares. NULL: the node is not a square. */
static const char *squared(const gp_onnx_mapping *m, const Onnx__NodeProto *node)
{
    if (is_op(node, "Pow") && node->n_input == 2 && is_number(m, node->input[1], 2.0))
        return node->input[0];
    return is_op(node, "Mul") && node->n_input == 2 && strcmp(node->input[0], node->input[1]) == 0
               ? node->input[0]
               : NULL;
}

/* Return the number that a node adds to the other operand, *other. 0: no match. */
static double number_added(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const char **other)
{
    if (!is_op(node, "Add") || node->n_input != 2)
        return 0.0;
    for (int k = 0; k < 2; k++) {
        const gp_onnx_value *value = gp_onnx_value_find(m, node->input[k]);

        *other = node->input[1 - k];
        if (value != NULL && value->role == GP_ONNX_VALUE_CONSTANT && value->tensor->data != NULL &&
            value->tensor->count == 1 && gp_onnx_is_float(value->tensor))
            return gp_onnx_real_at(value->tensor, 0);
    }
    return 0.0;
}

static void match_norm(gp_onnx_mapping *m, const Onnx__NodeProto *root)
{
    const Onnx__NodeProto *sum = root->n_input == 1 ? maker_of(m, root->input[0]) : NULL;
    const char *variance = NULL, *d, *scale, *offset;
    const double epsilon = number_added(m, sum, &variance);
    const Onnx__NodeProto *second = epsilon > 0.0 ? maker_of(m, variance) : NULL;
    const Onnx__NodeProto *square =
        is_op(second, "ReduceMean") && second->n_input >= 1 ? maker_of(m, second->input[0]) : NULL;

    d = squared(m, square);
    if (d == NULL || !is_last_mean(m, second, square->output[0]))
        return;
    const gp_onnx_value *difference = gp_onnx_value_find(m, d);
    const Onnx__NodeProto *subtract = difference == NULL ? NULL : node_of(m, difference->maker);
    const Onnx__NodeProto *first =
        is_op(subtract, "Sub") && subtract->n_input == 2 ? maker_of(m, subtract->input[1]) : NULL;
    const Onnx__NodeProto *divide = reader_of(m, root);

    if (first == NULL || !is_last_mean(m, first, subtract->input[0]) ||
        difference->uses != (is_op(square, "Pow") ? 2u : 3u) || !is_op(divide, "Div") ||
        divide->n_input != 2 || strcmp(divide->input[0], d) != 0)
        return;
    const Onnx__NodeProto *multiply = reader_of(m, divide);

    scale = operand_beside_value(multiply, "Mul", divide->output[0]);
    const Onnx__NodeProto *last = scale == NULL ? NULL : reader_of(m, multiply);

    offset = scale == NULL ? NULL : operand_beside_value(last, "Add", multiply->output[0]);
    if (offset == NULL)
        return;
    mark_skipped(
        m, (const Onnx__NodeProto *[]){ first, subtract, square, second, sum, root, divide, multiply }, 8);
    mark(m, last,
         &(gp_onnx_fusion){ .op_type = "LayerNormalization",
                            .inputs = { subtract->input[0], scale, offset },
                            .epsilon = (float)epsilon });
}

void gp_onnx_patterns_find(gp_onnx_mapping *m)
{
    const Onnx__GraphProto *graph = m->graph;
    gp_onnx_value *value;

    m->fusions = gp_calloc(graph->n_node, sizeof(*m->fusions));
    if (m->fusions == NULL) {
        gp_onnx_fail(m, GP_ENOMEM, "no memory for a model of %zu nodes", graph->n_node);
        return;
    }
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
        else if (is_op(graph->node[n], "Sqrt"))
            match_norm(m, graph->node[n]);
}
