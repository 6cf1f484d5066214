/* trainer.h -- one rank's part of one training.
 *
 *   gp_trainer_new()   options, network, data, plan, loader, group; takes all memory of the steps
 *   gp_trainer_run()   steps and validations until the last epoch, a stop, or a failure
 *   gp_trainer_free()
 *
 * A step has two phases.  Compute: forward, backward, exchange; writes gradients and scratch only.  Commit:
 * begins when the last bucket is complete, updates parameters and state in place, needs no peer.  So the
 * weights are those of step s or s + 1 whatever dies, and a failed run leaves them whole.
 * Ranks of a large network keep one copy of the state, and share the update: then it is scratch that the
 * update writes, and the commit that makes it the state (trainer_shard.c).
 *
 * The compute thread calls new, run and free; gp_train_control is shared with the control thread. */
#ifndef GP_TRAINER_H
#define GP_TRAINER_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/error.h"
#include "common/data/store/store.h"
#include "proto/message/messages.h"
#include "worker/backend/backend.h"
#include "worker/comm/comm.h"

typedef struct gp_trainer gp_trainer;
typedef struct gp_train_held
    gp_train_held; /* what a training leaves for another group of its lease (trainer_held.c) */

/* How the control thread reaches a training: valid for the daemon's life, reset before each run.
 * `stop` is read at every step; `comm` is set while a group exists, under `lock`. */
typedef struct gp_train_control {
    _Atomic uint32_t stop;     /* 0 = go on, 1 = at the next step boundary, 2 = at once */
    _Atomic uint32_t pause;    /* 1 = stop at the next step boundary, to go on in another group */
    _Atomic uint64_t progress; /* + 1 with every call, bucket and batch: stands still when compute does */
    _Atomic uint64_t step;
    _Atomic uint32_t epoch;
    /* Stretches of a step that need no peer and no data, so that one which lasts is no fault of anybody else's. */
    _Atomic int64_t stretch_since_ms, stretch_max_ms; /* 0: in none; the longest that ended */
    _Atomic uint64_t hold;                            /* the lease whose state may be held; 0 = none */
    pthread_mutex_t lock;
    gp_comm *comm; /* of the present run; NULL between runs */
    uint32_t generation;
} gp_train_control;

void gp_train_control_init(gp_train_control *control);
void gp_train_control_deinit(gp_train_control *control);
/* Before the next training: stop, progress, step, epoch and stretches to 0.  No training may be running. */
void gp_train_control_reset(gp_train_control *control);
/* A stretch of a step begins, or goes on after the exchange; and ends.  By the compute thread. */
void gp_train_control_stretch(gp_train_control *control);
bool gp_train_control_rest(gp_train_control *control); /* false: there was none */
/* Count progress, by which the control thread sees that the compute thread is not stalled. */
void gp_train_control_progress(gp_train_control *control);
/* GP_ECANCELED: a stop at once was requested. step: committed steps, for the message. */
gp_status gp_train_control_check(const gp_train_control *control, uint64_t step, gp_error *err);
/* The group of the present run, so that others can end its waits; NULL when it is no more. */
void gp_train_control_set_comm(gp_train_control *control, gp_comm *comm, uint32_t generation);
/* From any thread: stop at once and end every wait of the exchange. */
void gp_train_control_abort(gp_train_control *control);

/* Everything is borrowed and must live until gp_trainer_free(), but for the weights: until
 * gp_trainer_new() returns. */
typedef struct gp_trainer_setup {
    const gp_train_begin *begin;
    const char *netspec, *options; /* JSON texts */
    size_t netspec_bytes, options_bytes;
    const float *weights; /* initial blob, or NULL */
    size_t weights_count; /* float32 elements */
    const char *classes;  /* JSON array of names that labels are numbered by; NULL: as the data number them */
    size_t classes_bytes;
    gp_status (*open)(gp_store **out, const char *source, gp_data_role role, const gp_store_options *options,
                      gp_error *err); /* of data; NULL: gp_store_open_with() */
    gp_train_held *held; /* of the group before, where begin->restart > 0; NULL: this rank has none */
    const gp_comm_rendezvous *group; /* rank, world, members, rendezvous; arena_bytes is filled in here */
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
    gp_train_control *control;
    size_t shard_minimum; /* parameters from which on the ranks keep one copy of them; 0: as is best */
} gp_trainer_setup;

/* Called on the compute thread; must not block. */
typedef struct gp_train_sink {
    void *context;
    void (*record)(void *context, const gp_train_record *record);
    void (*validation)(void *context, const gp_train_validation *validation);
    /* Send a sentence to the client; may wait. */
    void (*note)(void *context, const char *text, bool warning);
    void (*validating)(void *context, const gp_train_validating *validating); /* may be NULL */
} gp_train_sink;

/* *ready is filled on success: what train_ready tells the client. */
gp_status gp_trainer_new(gp_trainer **out, gp_train_ready *ready, const gp_trainer_setup *setup,
                         gp_error *err);
void gp_trainer_free(gp_trainer *trainer);

/* gp_trainer_prepare -- for a rank that will join a training, while the others take steps without it: all that gp_trainer_new()
 * does alone (options, network, data, memory, plans), to the same refusals, and then all of it is given back but what takes
 * time and can be used again: the data as they are open.  What a backend keeps between plans (compiled kernels, threads) is warm.
 *   setup   group: world of the training when it has joined, and any rank; held: what this function returned before, or NULL
 *   out     for gp_trainer_new() in the next group of that lease, as if it were held; also on failure; NULL: nothing is kept
 * GP_ECANCELED: `control` was told to stop. */
gp_status gp_trainer_prepare(gp_train_held **out, const gp_trainer_setup *setup, uint64_t lease,
                             gp_error *err);

/* Returns when training ended.  done is always filled, with status, sentence and stop reason; its status is
 * also the returned value. */
gp_status gp_trainer_run(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done);

/* A copy of the state, and the data as they are open: the trainer can only be freed then.  The state must be that of a step that all have committed or none: after gp_trainer_run(), whatever came of
 * it.  NULL: the options do not ask for it (max-restarts 0), a device has lost it, or there is no memory.  Freed by gp_train_held_free(). */
gp_train_held *gp_trainer_hold(gp_trainer *trainer, uint64_t lease);
uint64_t gp_train_held_lease(const gp_train_held *held); /* 0: of NULL */
void gp_train_held_free(gp_train_held *held);            /* accepts NULL */

/* The weights blob (float32 elements) and the class names as a JSON array; borrowed, until free. */
const float *gp_trainer_weights(const gp_trainer *trainer, size_t *count);
const char *gp_trainer_classes(const gp_trainer *trainer);

#endif
