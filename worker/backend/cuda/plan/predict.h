/* Pipelined predictions on the device, with at most two in progress. Private to this folder.
 *
 *   input    samples of k+1 |
 *   main     turn, samples, layers, losses, scores and sums into a slot of k
 *   output                  | results of k-1 to the host
 *
 * A plan has a fixed shape. A smaller batch runs the same pass with another count, so a sample's
 * scores are bitwise identical in every batch. The first pass launches each step, because libraries
 * load their kernels at that time. The second pass is recorded, and later passes replay the
 * recording. One graph serves both slots, because it reads the current slot number from device
 * memory. */
#ifndef GP_CUDA_PREDICT_H
#define GP_CUDA_PREDICT_H

#include "worker/backend/cuda/plan/slots.h"

/* Prediction state. A slot for input contains [call | targets | samples], a slot for output [sums |
 * scores]. */
typedef struct gp_predict {
    gp_slots calls, answers;
    size_t targets_at, samples_at, scores_at; /* offsets in a slot */
    gp_kernel_kept *kept;                     /* device state that selects the slot */
    /* NULL: not recorded yet, or recording is impossible */
    gp_device_graph *graph;
    bool warm; /* one pass has run */
    bool over; /* a failure occurred; nothing more is launched */
    /* reason why the pass cannot be recorded; "": it can */
    char pieces[200];
    uint64_t launched, taken;
    int64_t longest_ns;                  /* longest wait for a result so far */
    bool compared[GP_PREDICTIONS_AHEAD]; /* per slot: targets were given */
} gp_predict;

extern const gp_backend_predictions gp_plan_predictions;

/* Prepare predictions for a lowered inference plan. Changes the plan's first step. */
gp_status gp_predict_open(gp_plan *plan, gp_error *err);
void gp_predict_close(gp_plan *plan); /* Wait for the device, then free everything. */

/* Run one prediction synchronously; scores and sums are then in the plan's memory. */
gp_status gp_predict_run(gp_plan *plan, const gp_batch *batch, gp_error *err);

#endif
