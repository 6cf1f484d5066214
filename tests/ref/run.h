/* run.h: run a whole phase of a graph on the oracle in ops.h, as the reference for every backend.
 *
 *   gp_ref_batch batch = { .blob = blob, .input = input, .targets = labels, .count = 8 };
 *   gp_ref_run *run = gp_ref_run_new(graph, GP_PHASE_TRAIN, &batch);
 *   ... run->gradients, run->sums, run->values[graph->ends[0].logits] ...
 *   gp_ref_run_free(run);
 *
 * Sums and gradients cover this call only: plain sums over its samples. For tests only: the program
 * ends when memory runs out. */
#ifndef GP_REF_RUN_H
#define GP_REF_RUN_H

#include "common/model/graph/graph.h"

typedef struct gp_ref_batch {
    const double *blob;  /* parameters in graph layout */
    const double *input; /* [count][C * H * W], normalized: see gp_ref_input() */
    const void *targets; /* [count][graph->target_bytes]; NULL with INFER only: sums stay 0 */
    int64_t count;

    /* for dropout; position: first sample's index in the global batch */
    uint64_t seed, step, position;

    /* Planted error, to prove that a check can fail: unless scale is 0, the outputs of
     * ops[phase].op[scaled_op], except sums and indices, are multiplied by it. */
    double scale;
    uint32_t scaled_op;
} gp_ref_batch;

typedef struct gp_ref_run {
    double *gradients; /* [blob_count] in blob layout; NULL unless TRAIN */
    double sums[GP_SUMS];
    const double *scores; /* scores for the first loss, [count][scores]; NULL unless INFER */

    /* By value number: [count][elements]; parameters and their gradients without the sample axis.
     * NULL: unused in this phase. Indices and labels are float64 too. */
    double **values;
    uint32_t value_count;
} gp_ref_run;

gp_ref_run *gp_ref_run_new(const gp_graph *graph, gp_phase phase, const gp_ref_batch *batch);
void gp_ref_run_free(gp_ref_run *run);

/* Generate packed targets for a graph: random valid classes, and values from [-1, 1). About one in
 * eight is -1 or NaN, which the losses ignore. The caller frees the result with free(). */
void *gp_ref_targets_new(const gp_graph *graph, int64_t count, uint64_t seed);

/* Convert stored samples (GP_U8 or GP_F32, [count][C][H][W]) to network input: value * scale +
 * offset. */
void gp_ref_input(const gp_netspec *spec, gp_dtype dtype, const void *samples, int64_t count, double *input);

/* Convert a float32 blob to float64. */
void gp_ref_widen(const float *from, size_t count, double *to);

/* Return the largest difference of two vectors, relative to the largest absolute expected value (or
 * to 1 if that is 0). Infinite if a value is NaN. */
double gp_ref_error(const double *expected, const double *got, size_t count);
double gp_ref_error_f32(const double *expected, const float *got, size_t count);

#endif
