/* trainer_held.c -- the state of a training outlives its group.
 *
 *   steps ... a rank exits, or all pause -> hold -> free: the group is left -> generation + 1: new -> take -> agree -> steps ...
 *
 * Every rank that is alive has the state of step s or of step s + 1, never a mixture (trainer.h). In the next group all ranks
 * agree on the most advanced state. The lowest rank that has it broadcasts it, if other ranks have less: ranks that have
 * joined, and ranks that had not committed that step. So a step is repeated only if no rank has committed it, and a
 * validation only if no rank has finished it.
 *
 * A worker that will join prepares while the others take steps: it opens the data and compiles the plans once
 * (gp_trainer_prepare). So all ranks of the next group have the same work to do. */
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"
#include "worker/train/trainer_state.h"

struct gp_train_held {
    uint64_t lease;
    uint64_t layout; /* of the network's parameters, gp_graph_layout_hash() */
    gp_train_progress progress;
    uint64_t optim_step; /* steps of the optimiser */
    uint32_t state_blobs;
    size_t count;                     /* float32 elements of a blob */
    float *parameters, *state, *best; /* owned; best: NULL if not kept; all NULL: data only */
    gp_store *stores[2];              /* open training and validation data, owned; NULL: taken, or none */
    uint64_t skipped[2];              /* of each, the skipped images that the client knows of */
    char *plans;                      /* choices of engines (trainer_tuning.h), owned; NULL: none */
};

/* ---- between two groups ---- */

static float *copy_of(const float *blob, size_t count)
{
    float *copy = gp_malloc(count * sizeof(float) + 1);

    if (copy != NULL)
        memcpy(copy, blob, count * sizeof(float));
    return copy;
}

gp_train_held *gp_trainer_hold(gp_trainer *trainer, uint64_t lease)
{
    gp_train_held *held = gp_trainer_hold_data(trainer, lease);
    gp_checkpoint now;

    if (held == NULL)
        return NULL;
    gp_trainer_checkpoint(trainer, &now);
    held->progress = gp_train_progress_carry_over(&trainer->progress);
    held->optim_step = now.optim_step;
    held->count = trainer->graph->blob_count;
    held->state_blobs = now.state_blobs;
    held->parameters = copy_of(now.parameters, held->count);
    held->state = copy_of(now.state, held->count * now.state_blobs);
    held->best = now.best == NULL ? NULL : copy_of(now.best, held->count);
    held->plans = trainer->tuning.document == NULL ? NULL : gp_strdup(trainer->tuning.document);
    if (held->parameters == NULL || held->state == NULL || (now.best != NULL && held->best == NULL) ||
        (trainer->tuning.document != NULL && held->plans == NULL)) {
        gp_log(GP_LOG_WARN, "state-not-held", "no memory to keep the state of step %llu for another group",
               (unsigned long long)now.step);
        gp_train_held_free(held);
        return NULL;
    }
    return held;
}

gp_train_held *gp_trainer_hold_data(gp_trainer *trainer, uint64_t lease)
{
    /* Parameters that the device has not given back are of no known step. */
    bool wanted = trainer->graph != NULL && trainer->data.training.store != NULL &&
                  trainer->options.max_restarts > 0 && trainer->pipeline.residency != GP_DEVICE_NEWER;
    gp_train_held *held = wanted ? gp_calloc(1, sizeof(*held)) : NULL;

    if (held == NULL)
        return NULL;
    held->lease = lease;
    held->layout = gp_graph_layout_hash(trainer->graph);
    gp_train_data_hand_over(&trainer->data, held->stores, held->skipped);
    return held;
}

uint64_t gp_train_held_lease(const gp_train_held *held)
{
    return held == NULL ? 0 : held->lease;
}

void gp_train_held_free(gp_train_held *held)
{
    if (held == NULL)
        return;
    gp_free(held->parameters);
    gp_free(held->best);
    gp_free(held->state);
    gp_free(held->plans);
    gp_store_close(held->stores[0]);
    gp_store_close(held->stores[1]);
    gp_free(held);
}

/* ---- in the next one ---- */

bool gp_trainer_take(gp_trainer *trainer, const gp_train_held *held)
{
    gp_checkpoint now;
    uint64_t *optim_step;

    gp_trainer_checkpoint(trainer, &now);
    gp_optim_state(trainer->optim, &now.state_blobs, &optim_step);
    if (held == NULL || held->parameters == NULL || held->layout != gp_graph_layout_hash(trainer->graph) ||
        held->count != trainer->graph->blob_count || held->state_blobs != now.state_blobs ||
        (held->best == NULL) != (now.best == NULL))
        return false;
    memcpy(now.parameters, held->parameters, held->count * sizeof(float));
    memcpy(now.state, held->state, held->count * held->state_blobs * sizeof(float));
    if (now.best != NULL)
        memcpy(now.best, held->best, held->count * sizeof(float));
    *optim_step = held->optim_step;
    trainer->progress = held->progress;
    /* Without memory for it, another rank chooses the engines. */
    trainer->tuning.document = held->plans == NULL ? NULL : gp_strdup(held->plans);
    trainer->tuning.carried = trainer->tuning.document != NULL;
    return true;
}

/* The stores are those of a training with the same options, as a restart has: they are open as it needs them. */
void gp_train_held_take_stores(gp_train_held *held, const gp_graph *graph, gp_train_data *data)
{
    gp_train_source *sources[2] = { &data->training, &data->validation };

    for (int i = 0; i < 2; i++) {
        if (held == NULL || held->stores[i] == NULL || held->layout != gp_graph_layout_hash(graph))
            continue;
        sources[i]->store = held->stores[i];
        sources[i]->skipped_reported = held->skipped[i];
        held->stores[i] = NULL;
    }
}

void gp_train_held_return_stores(gp_train_held *held, const gp_graph *graph, gp_train_data *data)
{
    if (held != NULL && graph != NULL && held->layout == gp_graph_layout_hash(graph))
        gp_train_data_hand_over(data, held->stores, held->skipped);
}

/* Progress as the ranks of one build send it to each other. */
typedef struct position {
    gp_train_progress progress;
    uint64_t optim_step;
} position;

/* Make the state of the root the state of all ranks; collective. */
static gp_status broadcast_state(gp_trainer *trainer, uint32_t root, gp_error *err)
{
    size_t bytes = trainer->graph->blob_count * sizeof(float);
    gp_comm *comm = trainer->comm;
    uint64_t *optim_step;
    gp_checkpoint now;
    position at;

    gp_trainer_checkpoint(trainer, &now);
    gp_optim_state(trainer->optim, &now.state_blobs, &optim_step);
    at = (position){ .progress = trainer->progress, .optim_step = *optim_step };

    gp_status status = gp_comm_broadcast_private(comm, &at, sizeof(at), root, err);

    if (status == GP_OK)
        status = gp_comm_broadcast_private(comm, now.parameters, bytes, root, err);
    if (status == GP_OK && now.state_blobs > 0)
        status = gp_comm_broadcast_private(comm, now.state, bytes * now.state_blobs, root, err);
    if (status == GP_OK && now.best != NULL)
        status = gp_comm_broadcast_private(comm, now.best, bytes, root, err);
    if (status != GP_OK)
        return status;
    trainer->progress = at.progress;
    *optim_step = at.optim_step;
    return GP_OK;
}

gp_status gp_trainer_agree(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    enum { RANKS = GP_COMM_WORLD_MAX };
    const gp_train_progress *progress = &trainer->progress;
    const int64_t order = 2 * (int64_t)progress->step + !progress->validation_due;
    int64_t furthest[2] = { order * RANKS + (RANKS - 1 - gp_comm_rank(trainer->comm)), -order };
    gp_status status = gp_comm_all_reduce_private(trainer->comm, furthest, 2, GP_I64, GP_COMM_MAX, err);

    if (status != GP_OK)
        return status;
    if (furthest[0] / RANKS == -furthest[1]) /* all are equal: if this one is blank, no step was taken */
        return trainer->blank ? gp_trainer_initialize(trainer, setup, err) : GP_OK;
    return broadcast_state(trainer, (uint32_t)(RANKS - 1 - furthest[0] % RANKS), err);
}
