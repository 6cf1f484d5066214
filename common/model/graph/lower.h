/* Internal interface between graph.c, lower.c and the layer kinds, used while a graph is
 * lowered. */
#ifndef GP_LOWER_H
#define GP_LOWER_H

#include "common/model/graph/graph.h"

/* Append a value to the graph's table.
 *   role   see gp_value_role
 *   shape  per sample, except for parameters and per-call values; may point into the table
 *   layer  layer that computes it
 *   index  set to the value's index */
gp_status gp_graph_add_value(gp_graph *graph, gp_value_role role, gp_dtype dtype, const gp_shape *shape,
                             uint32_t layer, uint32_t *index, gp_error *err);

/* Fill graph->ops from the layers and parameters. Called once per graph. */
gp_status gp_graph_lower(gp_graph *graph, gp_error *err);

#endif
