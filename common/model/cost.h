/* cost.h -- what a network costs, told from its graph alone: multiply-adds and memory, before anything is compiled. */
#ifndef GP_COST_H
#define GP_COST_H

#include "common/model/graph/graph.h"
#include "common/model/train_options.h"

/* Of one layer and one sample. */
typedef struct gp_layer_cost {
    int64_t parameters;                  /* learned ones */
    int64_t forward_macs, backward_macs; /* of convolutions and products; all else is not counted */
} gp_layer_cost;

/* costs: one per layer of the graph's netspec, written. */
void gp_graph_costs(const gp_graph *graph, gp_layer_cost *costs);

/* Bytes, as one worker would take them.  An estimate: a backend also keeps packed copies of weights and scratch memory
 * of its kernels, and saves what it fuses. */
typedef struct gp_memory_estimate {
    double parameters, gradients, state; /* float32; gradients and the optimiser's state in training only */
    double activations;                  /* of the whole call */
    double total;
} gp_memory_estimate;

/* gp_graph_memory -- of a call of that many samples.
 *   activations  the most bytes alive at once when the phase's ops run in order and each value lives from the op that
 *                writes it to the last one that reads it: what a packer of buffers reaches at best
 *   solver       whose state counts in training
 * GP_ENOMEM. */
gp_status gp_graph_memory(gp_memory_estimate *out, const gp_graph *graph, gp_phase phase, int64_t samples,
                          gp_solver solver, gp_error *err);

/* float32 numbers of state that a solver keeps for each parameter. */
uint32_t gp_solver_state(gp_solver solver);

#endif
