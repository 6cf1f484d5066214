/* Estimate a network's cost from the graph, before compilation: multiply-adds and memory. */
#ifndef GP_COST_H
#define GP_COST_H

#include "common/model/graph/graph.h"
#include "common/model/train_options.h"

/* Cost for one layer and one sample. */
typedef struct gp_layer_cost {
    int64_t parameters; /* learned parameters, without statistics */
    /* Multiply-adds in convolutions and matrix products; all other operations count as 0. */
    int64_t forward_macs, backward_macs;
} gp_layer_cost;

/* Compute the costs for all layers. costs: array with one element per network layer. */
void gp_graph_costs(const gp_graph *graph, gp_layer_cost *costs);

/* Estimated memory for one worker, in bytes. A backend also needs packed weight copies and scratch
 * memory for kernels, and saves memory when it fuses operations. */
typedef struct gp_memory_estimate {
    /* float32; gradients and optimizer state only in training */
    double parameters, gradients, state;
    double activations; /* for the whole call */
    double total;
} gp_memory_estimate;

/* Estimate the memory for a call.
 *   phase    training or inference
 *   samples  samples in the call
 *   solver   determines the optimizer state in training
 * Activations are the peak size summed over all live values when operations run in order. A value
 * is live from the operation that writes it to the last one that reads it. No buffer allocator can
 * need less. GP_ENOMEM. */
gp_status gp_graph_memory(gp_memory_estimate *out, const gp_graph *graph, gp_phase phase, int64_t samples,
                          gp_solver solver, gp_error *err);

/* Return how many float32 state values a solver keeps per parameter. */
uint32_t gp_solver_state(gp_solver solver);

#endif
