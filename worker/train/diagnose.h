/* diagnose.h -- find the layer and sample where a loss that is not finite originates.
 *
 * A step that diverged has not changed weights and data, so the forward pass can be repeated: op
 * by op with all values kept, on the CPU in float32 for every device, a few samples at a time.
 * The first op whose output is not finite identifies the layer. */
#ifndef GP_DIAGNOSE_H
#define GP_DIAGNOSE_H

#include "common/base/error.h"
#include "common/data/loader/loader.h"
#include "common/model/graph/graph.h"
#include "worker/train/trainer.h"

/* Origin of a non-finite value, ordered by position in the forward pass. */
typedef enum gp_bad_place {
    GP_BAD_WEIGHTS, /* weights of layer `layer`, before the step */
    GP_BAD_INPUT,   /* stored sample values */
    GP_BAD_OUTPUT,  /* output of layer `layer` */
    /* all values are finite in float32: the cause is the device precision, or the loss sum */
    GP_BAD_NOWHERE,
} gp_bad_place;

/* Origin of the first non-finite value. */
typedef struct gp_diagnosis {
    gp_bad_place place;
    gp_phase phase; /* as requested */

    /* op: index in the forward pass, valid for GP_BAD_OUTPUT; layer: valid for GP_BAD_OUTPUT and
     * GP_BAD_WEIGHTS */
    uint32_t op, layer;

    /* first affected sample's index in the mini-batch or validation data; not valid for
     * GP_BAD_WEIGHTS */
    uint64_t position;
} gp_diagnosis;

/* Parameters of gp_diagnose(); all pointers are borrowed. */
typedef struct gp_diagnose_request {
    /* GP_PHASE_INFER for a validation; the search stops after the first call with a bad
     * sample */
    gp_phase phase;
    const gp_graph *graph;
    const float *parameters; /* parameter blob */
    const gp_store *store;
    const gp_sampler *sampler;
    const gp_augment *augment;    /* sample augmentation, with the training seed */
    uint32_t epoch, first, count; /* samples of this rank, as positions in the sampler order */
    uint64_t position;            /* first sample's index in the mini-batch or validation data */
    uint64_t seed, step;          /* random state for dropout and augmentation */
    gp_train_control *control;    /* counts progress */
} gp_diagnose_request;

/* Run the diagnosis. Takes as long as a few slow steps and allocates activation memory for a few
 * samples. On failure (out of memory) *out is unchanged. */
gp_status gp_diagnose(gp_diagnosis *out, const gp_diagnose_request *request, gp_error *err);

/* Convert a diagnosis to a number and back. The minimum over all ranks is the earliest origin. */
int64_t gp_diagnosis_key(const gp_diagnosis *diagnosis);
gp_diagnosis gp_diagnosis_from_key(int64_t key, const gp_graph *graph, gp_phase phase);

/* Format a diagnosis: "it first appears in the output of layer fc2 (fc), in sample 17 of the
 * mini-batch". */
const char *gp_diagnosis_format(const gp_diagnosis *diagnosis, const gp_graph *graph, char *text,
                                size_t bytes);

#endif
