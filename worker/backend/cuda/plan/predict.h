/* predict.h -- predictions on the device, of which two are under way at a time.  Private to this folder.
 *
 *   input    samples of k+1 |
 *   main     turn, samples, layers, losses, scores and sums into a slot of k
 *   output                  | those of k-1 to the host
 *
 * A plan has one shape: a smaller batch runs the same pass and is told apart by its count, so that a sample's scores have the
 * same bits in whichever batch it comes.  The pass is launched piece by piece the first time, because libraries load their
 * kernels then, recorded when it comes again, and replayed from then on; one graph for both slots, as it reads from memory
 * which is whose turn. */
#ifndef GP_CUDA_PREDICT_H
#define GP_CUDA_PREDICT_H

#include "worker/backend/cuda/plan/slots.h"

/* A slot in: [call | targets | samples]; a slot out: [sums | scores]. */
typedef struct gp_predict {
    gp_slots calls, answers;
    size_t targets_at, samples_at, scores_at; /* in a slot */
    gp_kernel_kept *kept;                     /* whose turn it is */
    gp_device_graph *graph;                   /* NULL: not recorded yet, or never */
    bool warm;                                /* ran once */
    bool over;                                /* something failed: nothing more is begun */
    char pieces[200];                         /* why it is not recorded; "" = it is, or will be */
    uint64_t launched, taken;
    int64_t longest_ns;                  /* that one was waited for */
    bool compared[GP_PREDICTIONS_AHEAD]; /* targets came with it */
} gp_predict;

extern const gp_backend_predictions gp_plan_predictions;

/* Of a plan for inference whose steps are there; changes its first. */
gp_status gp_predict_open(gp_plan *plan, gp_error *err);
void gp_predict_close(gp_plan *plan); /* waits */
/* One, and its scores and sums in the plan's memory. */
gp_status gp_predict_run(gp_plan *plan, const gp_batch *batch, gp_error *err);

#endif
