/* diagnose.h -- where a loss that is not finite comes from.
 *
 * A step that diverged has left weights and data as they were, so its forward pass can be run again: op by op with
 * every value kept, on the CPU in float32 whatever the device, a few samples at a time.  The first op in the order of
 * the forward pass whose output is not finite names the layer. */
#ifndef GP_DIAGNOSE_H
#define GP_DIAGNOSE_H

#include "common/base/error.h"
#include "common/data/loader/loader.h"
#include "common/model/graph/graph.h"

/* Ordered: the smaller one comes first in the forward pass. */
typedef enum gp_bad_place {
    GP_BAD_WEIGHTS, /* of layer `layer`, before the step */
    GP_BAD_INPUT,   /* a sample's stored values */
    GP_BAD_OUTPUT,  /* of layer `layer` */
    GP_BAD_NOWHERE, /* everything is finite in float32: the device's precision, or the sum of the losses */
} gp_bad_place;

typedef struct gp_diagnosis {
    gp_bad_place place;
    gp_phase phase; /* as requested */
    uint32_t op,
        layer; /* op: index in the forward pass; both of GP_BAD_OUTPUT, layer of GP_BAD_WEIGHTS too */
    uint64_t
        position; /* of the first such sample, in the mini-batch or the validation data; not of weights */
} gp_diagnosis;

typedef struct gp_diagnose_request {
    gp_phase
        phase; /* GP_PHASE_INFER: of a validation; the samples after the first bad ones are not examined */
    const gp_graph *graph;
    const float *parameters; /* the blob */
    const gp_store *store;
    const gp_sampler *sampler;
    const gp_augment *augment;    /* of the samples, with that seed */
    uint32_t epoch, first, count; /* our samples: of the sampler's order */
    uint64_t position;            /* of the first one in the mini-batch or the validation data */
    uint64_t seed, step;          /* of dropout and augmentation */
    void (*progress)(void *context);
    void *context;
} gp_diagnose_request;

/* Takes memory for a few samples' activations, and as long as a few slow steps.  A failure (no memory) leaves *out. */
gp_status gp_diagnose(gp_diagnosis *out, const gp_diagnose_request *request, gp_error *err);

/* One number that orders diagnoses of several ranks, and back: the smallest is the first. */
int64_t gp_diagnosis_key(const gp_diagnosis *diagnosis);
gp_diagnosis gp_diagnosis_from_key(int64_t key, const gp_graph *graph, gp_phase phase);

/* "it first appears in the output of layer fc2 (fc), in sample 17 of the mini-batch" */
const char *gp_diagnosis_format(const gp_diagnosis *diagnosis, const gp_graph *graph, char *text,
                                size_t bytes);

#endif
