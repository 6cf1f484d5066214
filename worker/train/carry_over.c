/* carry_over.c -- training state that outlives the group.
 *
 *   steps ... a rank exits, or all pause -> hold -> free: leave the group -> generation + 1: new
 *   -> take -> agree -> steps ...
 *
 * Every surviving rank has the state of step s or of step s + 1, never a mixture (trainer.h). In
 * the next group all ranks agree on the most advanced state. If some ranks have less, the lowest
 * rank with that state broadcasts it: to new ranks, and to ranks that had not committed that
 * step. So a step is repeated only if no rank has committed it, and a validation only if no rank
 * has finished it. After the last step a state may contain final weights (progress.ended). Then
 * the next group finishes validation and statistics, and writes no checkpoint.
 *
 * A worker that will join prepares while the others take steps: it opens the data and compiles
 * the plans once (gp_trainer_prepare). All ranks of the next group then have the same work left. */
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"
#include "worker/train/trainer_state.h"

struct gp_carry_over {
    uint64_t lease;
    uint64_t layout;     /* parameter layout of the network, gp_graph_layout_hash() */
    gp_checkpoint state; /* owns the blobs and plans; parameters NULL: data only */
    size_t count;        /* float32 elements per blob */
    gp_store *stores[2]; /* open training and validation data, owned; NULL: taken, or none */
    uint64_t skipped[2]; /* per store, the skipped images already reported to the client */
};

/* ---- end of a group ---- */

gp_carry_over *gp_trainer_hold(gp_trainer *trainer, uint64_t lease)
{
    gp_carry_over *held = gp_trainer_hold_data(trainer, lease);
    const char *plans = trainer->tuning.document;
    gp_checkpoint now;

    if (held == NULL)
        return NULL;
    gp_trainer_checkpoint(trainer, &now);
    held->count = trainer->graph->blob_count;
    held->state.plans = plans == NULL ? NULL : gp_strdup(plans);
    if (!gp_checkpoint_take_blobs(&held->state, &now, held->count) ||
        (plans != NULL && held->state.plans == NULL)) {
        gp_log(GP_LOG_WARN, "state-not-held", "no memory to keep the state of step %llu for another group",
               (unsigned long long)now.progress.step);
        gp_carry_over_free(held);
        return NULL;
    }
    gp_checkpoint_copy(&held->state, &now, held->count);
    held->state.progress = gp_train_progress_carry_over(&now.progress);
    return held;
}

gp_carry_over *gp_trainer_hold_data(gp_trainer *trainer, uint64_t lease)
{
    /* Host parameters older than the device's belong to no known step. */
    bool wanted = trainer->graph != NULL && trainer->data.training.store != NULL &&
                  trainer->options.max_restarts > 0 && trainer->pipeline.residency != GP_DEVICE_NEWER;
    gp_carry_over *held = wanted ? gp_calloc(1, sizeof(*held)) : NULL;

    if (held == NULL)
        return NULL;
    held->lease = lease;
    held->layout = gp_graph_layout_hash(trainer->graph);
    gp_pipeline_unlock(&trainer->pipeline);
    gp_train_data_hand_over(&trainer->data, held->stores, held->skipped);
    return held;
}

uint64_t gp_carry_over_lease(const gp_carry_over *held)
{
    return held == NULL ? 0 : held->lease;
}

void gp_carry_over_free(gp_carry_over *held)
{
    if (held == NULL)
        return;
    gp_checkpoint_free_blobs(&held->state);
    gp_free(held->state.plans);
    gp_store_close(held->stores[0]);
    gp_store_close(held->stores[1]);
    gp_free(held);
}

/* ---- start of the next group ---- */

bool gp_trainer_take(gp_trainer *trainer, const gp_carry_over *held)
{
    const gp_checkpoint *state;
    gp_checkpoint now;

    if (held == NULL)
        return false;
    state = &held->state;
    gp_trainer_checkpoint(trainer, &now);
    if (state->parameters == NULL || held->layout != gp_graph_layout_hash(trainer->graph) ||
        held->count != trainer->graph->blob_count || state->state_blobs != now.state_blobs ||
        (state->best == NULL) != (now.best == NULL))
        return false;
    gp_checkpoint_copy(&now, state, held->count);
    gp_trainer_continue(trainer, &now);
    /* Out of memory: another rank chooses the engines. */
    trainer->tuning.document = state->plans == NULL ? NULL : gp_strdup(state->plans);
    trainer->tuning.carried = trainer->tuning.document != NULL;
    return true;
}

/* Return whether the stores can be reused. A restart has the same options, so they are open in
 * the required way. */
static bool held_stores_fit(const gp_carry_over *held, const gp_graph *graph)
{
    return held != NULL && graph != NULL && held->layout == gp_graph_layout_hash(graph);
}

void gp_carry_over_take_stores(gp_carry_over *held, const gp_graph *graph, gp_train_data *data)
{
    if (held_stores_fit(held, graph))
        gp_train_data_take_over(data, held->stores, held->skipped);
}

void gp_carry_over_return_stores(gp_carry_over *held, const gp_graph *graph, gp_train_data *data)
{
    if (held_stores_fit(held, graph))
        gp_train_data_hand_over(data, held->stores, held->skipped);
}

gp_status gp_trainer_agree(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    enum { RANKS = GP_COMM_WORLD_MAX };
    const gp_train_progress *progress = &trainer->progress;
    const bool validated = progress->last_validation.step == progress->step;

    /* Order the states of one step by progress, most significant first: validation done, steps
     * ended, population statistics computed, last validation made at this step. */
    const int stage = 8 * !progress->validation_due + 4 * (progress->ended != 0) +
                      2 * progress->population_done + validated;
    const int64_t order = 16 * (int64_t)progress->step + stage;
    gp_comm *comm = trainer->comm;
    int64_t furthest[2] = { order * RANKS + (RANKS - 1 - gp_comm_rank(comm)), -order };
    gp_status status = gp_comm_all_reduce_private(comm, furthest, 2, GP_I64, GP_COMM_MAX, err);

    if (status != GP_OK)
        return status;

    /* All ranks are equal. If this one is uninitialized, no step was taken. */
    if (furthest[0] / RANKS == -furthest[1])
        return trainer->blank ? gp_trainer_initialize(trainer, setup, err) : GP_OK;
    /* Copy the root's state to all ranks. All ranks run the same build. */
    const uint32_t root = (uint32_t)(RANKS - 1 - furthest[0] % RANKS);
    size_t bytes = trainer->graph->blob_count * sizeof(float);
    gp_checkpoint ours, theirs;

    gp_trainer_checkpoint(trainer, &ours);
    theirs = ours;
    status = gp_comm_broadcast(comm, &theirs, sizeof(theirs), root, err);
    if (status == GP_OK)
        status = gp_comm_broadcast(comm, ours.parameters, bytes, root, err);
    if (status == GP_OK && ours.state_blobs > 0)
        status = gp_comm_broadcast(comm, ours.state, bytes * ours.state_blobs, root, err);
    if (status == GP_OK && ours.best != NULL)
        status = gp_comm_broadcast(comm, ours.best, bytes, root, err);
    if (status == GP_OK) /* copies only the numbers: the root's pointers are invalid here */
        gp_trainer_continue(trainer, &theirs);
    return status;
}
