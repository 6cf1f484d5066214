/* lower.h -- between graph.c and the kinds: values made while lowering.  Not for users of a graph. */
#ifndef GP_LOWER_H
#define GP_LOWER_H

#include "common/model/graph/graph.h"

/* Append a value to the graph's table; *index is its number. */
gp_status gp_graph_add_value(gp_graph *graph, gp_value_role role, gp_dtype dtype, const gp_shape *shape,
                             uint32_t layer, uint32_t *index, gp_error *err);

/* A layer's weights of classes, made when first asked for. */
gp_status gp_graph_add_weights(gp_graph *graph, uint32_t layer, size_t count, double **weights,
                               gp_error *err);

/* Fill graph->ops from its resolved layers and parameters, once. */
gp_status gp_graph_lower(gp_graph *graph, gp_error *err);

#endif
