/* trainer_held.c -- the state of a training outlives its group.
 *
 *   steps ... a peer dies, or all pause -> keep -> free: the group is left -> generation + 1: new -> take -> agree -> steps ...
 *
 * Whoever lives has the state of step s or of step s + 1, never a mixture (trainer.h).  In the next group all ranks agree
 * on the furthest state of any of them, and its holder of the lowest rank sends it to those who have less: members that
 * are new, and ranks that had not committed that step.  So a step is redone only if nobody has committed it, and no
 * validation that somebody has finished is repeated.
 *
 * One that will join is brought to where a survivor is while the others take steps: its data are open, its backend has
 * seen the plans (gp_trainer_prepare).  Then all ranks of the next group have the same to do. */
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "worker/train/trainer_state.h"

/* Where a training stands; broadcast as it is between processes of one build. */
typedef struct place {
    gp_checkpoint at; /* without its blobs, which go by themselves */
    double loss;
    int64_t elapsed_ns;
    uint32_t owes_validation, owes_checkpoint;
    gp_train_validation judged;
    uint64_t excluded;
} place;

struct gp_train_held {
    uint64_t lease, layout; /* layout: of the network, gp_graph_layout_hash() */
    place place;
    uint32_t state_blobs;
    size_t count; /* float32 elements of a blob */
    float *parameters, *best,
        *state;          /* best: NULL where there is none; all NULL: of one that has yet to join */
    gp_store *stores[2]; /* data and validation, as they were open; NULL = taken, or none */
    uint64_t skipped[2]; /* of each, that were told of */
    char *plans;         /* that were chosen (trainer_tuning.c); NULL: none */
};

static place place_of(gp_trainer *trainer)
{
    place here = { .loss = trainer->loss,
                   .elapsed_ns =
                       trainer->begin_ns == 0 ? trainer->elapsed_ns : gp_now_ns() - trainer->begin_ns,
                   .owes_validation = trainer->owes_validation,
                   .owes_checkpoint = trainer->owes_checkpoint,
                   .judged = trainer->judged,
                   .excluded = trainer->excluded };

    gp_trainer_checkpoint(trainer, &here.at);
    here.at.parameters = here.at.state = here.at.best = NULL;
    return here;
}

static void place_set(gp_trainer *trainer, const place *p)
{
    gp_trainer_stand(trainer, &p->at);
    trainer->loss = p->loss;
    trainer->elapsed_ns = p->elapsed_ns;
    trainer->owes_validation = p->owes_validation != 0;
    trainer->judged = p->judged;
    trainer->excluded = p->excluded;
    trainer->owes_checkpoint = p->owes_checkpoint != 0; /* matters to rank 0 alone */
}

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
    gp_train_held *held = gp_calloc(1, sizeof(*held));
    gp_checkpoint now;

    if (trainer->options.max_restarts == 0 || trainer->stale ||
        held == NULL) { /* stale: of no step any more */
        gp_free(held);
        return NULL;
    }
    gp_trainer_checkpoint(trainer, &now);
    held->lease = lease;
    held->layout = gp_graph_layout_hash(trainer->graph);
    held->place = place_of(trainer);
    held->count = trainer->graph->blob_count;
    held->state_blobs = now.state_blobs;
    held->parameters = copy_of(now.parameters, held->count);
    held->state = copy_of(now.state, held->count * now.state_blobs);
    held->best = now.best == NULL ? NULL : copy_of(now.best, held->count);
    held->plans = trainer->plans == NULL ? NULL : gp_strdup(trainer->plans);
    if (held->parameters == NULL || held->state == NULL || (now.best != NULL && held->best == NULL) ||
        (trainer->plans != NULL && held->plans == NULL)) {
        gp_log(GP_LOG_WARN, "state-not-held", "no memory to keep the state of step %llu for another group",
               (unsigned long long)trainer->step);
        gp_train_held_free(held);
        return NULL;
    }
    held->stores[0] = trainer->data;
    held->stores[1] = trainer->validation;
    for (int i = 0; i < 2; i++)
        held->skipped[i] = held->stores[i] == NULL ? 0 : gp_store_skipped(held->stores[i]);
    trainer->kept_stores = true;
    return held;
}

gp_train_held *gp_trainer_hold_data(gp_trainer *trainer, uint64_t lease)
{
    gp_train_held *held =
        trainer->graph == NULL || trainer->data == NULL || trainer->options.max_restarts == 0
            ? NULL
            : gp_calloc(1, sizeof(*held));

    if (held == NULL)
        return NULL;
    held->lease = lease;
    held->layout = gp_graph_layout_hash(trainer->graph);
    held->stores[0] = trainer->data;
    held->stores[1] = trainer->validation;
    memcpy(held->skipped, trainer->skipped, sizeof(held->skipped));
    trainer->kept_stores = true;
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

    gp_trainer_checkpoint(trainer, &now);
    if (held == NULL || held->parameters == NULL || held->layout != gp_graph_layout_hash(trainer->graph) ||
        held->count != trainer->graph->blob_count || held->state_blobs != now.state_blobs ||
        (held->best == NULL) != (now.best == NULL))
        return false;
    memcpy(now.parameters, held->parameters, held->count * sizeof(float));
    memcpy(now.state, held->state, held->count * held->state_blobs * sizeof(float));
    if (now.best != NULL)
        memcpy(now.best, held->best, held->count * sizeof(float));
    place_set(trainer, &held->place);
    trainer->plans = held->plans == NULL ? NULL : gp_strdup(held->plans); /* no memory: chosen by another */
    trainer->plans_held = trainer->plans != NULL;
    return true;
}

/* A restart is of the same training, with the same options: the data are open already as it wants them. */
gp_store *gp_trainer_take_store(gp_trainer *trainer, const gp_trainer_setup *setup, bool validation)
{
    gp_store *store = setup->held == NULL ? NULL : setup->held->stores[validation];

    if (store == NULL || setup->held->layout != gp_graph_layout_hash(trainer->graph))
        return NULL;
    setup->held->stores[validation] = NULL;
    trainer->skipped[validation] = setup->held->skipped[validation];
    return store;
}

void gp_trainer_return_stores(gp_trainer *trainer, gp_train_held *held)
{
    gp_store **ours[2] = { &trainer->data, &trainer->validation };

    if (held == NULL || trainer->graph == NULL || held->layout != gp_graph_layout_hash(trainer->graph))
        return;
    for (int i = 0; i < 2; i++)
        if (held->stores[i] == NULL) {
            held->stores[i] = *ours[i];
            *ours[i] = NULL;
        }
}

static gp_status send_state(gp_trainer *trainer, uint32_t root, gp_error *err)
{
    size_t bytes = trainer->graph->blob_count * sizeof(float);
    place where = place_of(trainer);
    gp_checkpoint now;

    gp_trainer_checkpoint(trainer, &now);
    gp_status status = gp_comm_broadcast_private(trainer->comm, &where, sizeof(where), root, err);

    if (status == GP_OK)
        status = gp_comm_broadcast_private(trainer->comm, now.parameters, bytes, root, err);
    if (status == GP_OK && now.state_blobs > 0)
        status = gp_comm_broadcast_private(trainer->comm, now.state, bytes * now.state_blobs, root, err);
    if (status == GP_OK && now.best != NULL)
        status = gp_comm_broadcast_private(trainer->comm, now.best, bytes, root, err);
    if (status == GP_OK)
        place_set(trainer, &where);
    return status;
}

gp_status gp_trainer_agree(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    enum { RANKS = GP_COMM_WORLD_MAX };
    const int64_t progress = 2 * (int64_t)trainer->step + !trainer->owes_validation;
    int64_t furthest[2] = { progress * RANKS + (RANKS - 1 - trainer->rank), -progress };
    gp_status status = gp_comm_all_reduce_private(trainer->comm, furthest, 2, GP_I64, GP_COMM_MAX, err);

    if (status != GP_OK)
        return status;
    if (furthest[0] / RANKS == -furthest[1]) /* nobody has less, so if one is blank no step was taken */
        return trainer->blank ? gp_trainer_initialize(trainer, setup, err) : GP_OK;
    return send_state(trainer, (uint32_t)(RANKS - 1 - furthest[0] % RANKS), err);
}
