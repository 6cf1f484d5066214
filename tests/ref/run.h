/* run.h -- a whole phase of a graph on the oracle of ops.h: what every backend is compared with.
 *
 *   gp_ref_batch batch = { .blob = blob, .input = input, .targets = labels, .count = 8, .seed = 1 };
 *   gp_ref_run *run = gp_ref_run_new(graph, GP_PHASE_TRAIN, &batch);
 *   ... run->gradients, run->sums, run->values[graph->ends[0].logits] ...
 *   gp_ref_run_free(run);
 *
 * Sums and gradients are those of this call alone: the plain sum over its samples.  For tests: running out
 * of memory ends the program. */
#ifndef GP_REF_RUN_H
#define GP_REF_RUN_H

#include "common/model/graph/graph.h"

typedef struct gp_ref_batch {
    const double *blob;  /* parameters in the graph's layout */
    const double *input; /* [count][C * H * W], normalised: see gp_ref_input() */
    const void *targets; /* [count][graph->target_bytes]; NULL in INFER only: the sums stay 0 */
    int64_t count;
    uint64_t seed, step, position; /* of dropout; position of the first sample in the global batch */
    /* To prove that a check fails: unless scale is 0, the outputs of ops[phase].op[scaled_op], but its sums
     * and indices, are multiplied by it. */
    double scale;
    uint32_t scaled_op;
} gp_ref_batch;

typedef struct gp_ref_run {
    double *gradients; /* [blob_count] in the blob's layout; TRAIN only, else NULL */
    double sums[GP_SUMS];
    const double *scores; /* of the first loss, [count][its scores]; INFER only, else NULL */
    /* By the graph's value numbers: [count][elements], parameters and their gradients just the tensor; NULL
     * for those the phase does not touch.  Indices and labels are float64 too. */
    double **values;
    uint32_t value_count;
} gp_ref_run;

gp_ref_run *gp_ref_run_new(const gp_graph *graph, gp_phase phase, const gp_ref_batch *batch);
void gp_ref_run_free(gp_ref_run *run);

/* Targets for a graph, packed: classes drawn from those there are, values from [-1, 1); about one in eight of either is
 * -1 or not a number: ignored.  The caller frees them with free(). */
void *gp_ref_targets_new(const gp_graph *graph, int64_t count, uint64_t seed);

/* The network's input from stored samples (GP_U8 or GP_F32, [count][C][H][W]): value * scale + offset. */
void gp_ref_input(const gp_netspec *spec, gp_dtype dtype, const void *samples, int64_t count, double *input);

/* A float32 blob as float64. */
void gp_ref_widen(const float *from, size_t count, double *to);

/* The largest difference of two vectors over the largest absolute value of the expected one (or over 1 when
 * that is 0); infinite when a value is not a number. */
double gp_ref_error(const double *expected, const double *got, size_t count);
double gp_ref_error_f32(const double *expected, const float *got, size_t count);

#endif
