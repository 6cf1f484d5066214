/* trainer_diverged.c -- error messages for a non-finite loss, with the layer and sample where it
 * originates. */
#include <inttypes.h>
#include <math.h>

#include "worker/train/diagnose.h"
#include "worker/train/trainer_state.h"

/* Find the origin of the first non-finite value; collective. Each rank searches its share of the
 * samples, and all return the same message. */
static const char *find_first_bad(gp_trainer *trainer, gp_diagnose_request *request, char *text, size_t bytes)
{
    gp_diagnosis found = { .place = GP_BAD_NOWHERE, .phase = request->phase };
    gp_error ignored;
    int64_t key;

    request->graph = trainer->graph;
    request->parameters = trainer->parameters;
    request->seed = (uint64_t)trainer->options.seed;
    request->step = trainer->progress.step;
    request->control = trainer->control;
    gp_diagnose(&found, request, &ignored);
    key = -gp_diagnosis_key(&found);
    if (gp_comm_all_reduce_private(trainer->comm, &key, 1, GP_I64, GP_COMM_MAX, &ignored) == GP_OK)
        found = gp_diagnosis_from_key(-key, trainer->graph, request->phase);
    return gp_diagnosis_format(&found, trainer->graph, text, bytes);
}

gp_status gp_trainer_diverged(gp_trainer *trainer, const gp_train_call *call, double loss, gp_error *err)
{
    const uint64_t step = trainer->progress.step;
    uint32_t share_first, share;
    char text[160];
    gp_status status = gp_pipeline_fetch(&trainer->pipeline, trainer->parameters, NULL, err);

    if (status != GP_OK)
        return status;
    gp_schedule_share(&trainer->schedule, call->batch, &share_first, &share);
    gp_diagnose_request request = { .phase = GP_PHASE_TRAIN,
                                    .store = trainer->data.training.store,
                                    .sampler = &trainer->data.training.sampler,
                                    .augment = &trainer->data.augment,
                                    .epoch = call->epoch,
                                    .first = call->first - (uint32_t)call->position + share_first,
                                    .count = share,
                                    .position = share_first };

    return gp_fail(err, GP_EDIVERGED,
                   "the loss of step %" PRIu64 " is %s: %s; the weights are those of step %" PRIu64
                   "; lower initial-learn-rate (%g)",
                   step + 1, isnan(loss) ? "not a number" : "infinite",
                   find_first_bad(trainer, &request, text, sizeof(text)), step,
                   trainer->options.initial_learn_rate);
}

gp_status gp_trainer_validation_diverged(gp_trainer *trainer, uint32_t first, uint32_t count, double loss,
                                         gp_error *err)
{
    gp_augment fixed = gp_augment_fixed(&trainer->data.augment, trainer->options.image_size);
    gp_diagnose_request request = { .phase = GP_PHASE_INFER,
                                    .store = trainer->data.validation.store,
                                    .sampler = &trainer->data.validation.sampler,
                                    .augment = &fixed,
                                    .first = first,
                                    .count = count,
                                    .position = first };
    char text[160];

    return gp_fail(err, GP_EDIVERGED,
                   "the validation loss after step %" PRIu64
                   " is %s: %s; no model is written; lower initial-learn-rate (%g)",
                   trainer->progress.step, isnan(loss) ? "not a number" : "infinite",
                   find_first_bad(trainer, &request, text, sizeof(text)),
                   trainer->options.initial_learn_rate);
}
