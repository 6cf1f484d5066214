/* trainer.h -- one rank's part of a training.
 *
 *   gp_trainer_new()   options, network, data, plan, loader, group; allocates all memory for the
 *                      steps
 *   gp_trainer_run()   steps and validations until the last epoch, a stop, or a failure
 *   gp_trainer_free()
 *
 * A step has two phases. Compute (forward, backward, exchange) writes only gradients and scratch
 * memory. Commit starts when the last bucket is complete; it updates parameters and state in place
 * and needs no peer. So after any failure the weights are from step s or from step s + 1, never a
 * mixture. With a large network, the ranks share one copy of the state and divide the update: the
 * update then writes scratch memory, and the commit makes that memory the state (trainer_shard.c).
 *
 * The compute thread calls new, run and free. gp_train_control is shared with the control
 * thread. */
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
typedef struct gp_carry_over
    gp_carry_over; /* training state kept for the lease's next group (carry_over.c) */

/* Interface between the control thread and a training. It exists as long as the daemon and is
 * reset before each run. `comm` is set while a group exists and protected by `lock`. */
typedef struct gp_train_control {
    /* checked in every step; 0: continue, 1: stop at the next step boundary, 2: stop at once */
    _Atomic uint32_t stop;
    _Atomic uint32_t pause; /* 1: stop at the next step boundary and continue in another group */
    /* incremented by each call, bucket and batch; constant while compute is stalled */
    _Atomic uint64_t progress;
    _Atomic uint64_t calls;         /* calls of tasks that ended, over all leases */
    _Atomic uint64_t device_memory; /* as gp_backend_ops.device_memory, when compute last asked */
    _Atomic uint64_t step;
    _Atomic uint32_t epoch;

    /* Part of a step that needs neither a peer nor data ("stretch"). A long stretch is therefore
     * this rank's own delay. Current stretch start (0: none); longest completed one. */
    _Atomic int64_t stretch_since_ms, stretch_max_ms;
    _Atomic uint64_t hold; /* lease whose state may be kept; 0: none */
    pthread_mutex_t lock;
    gp_comm *comm; /* current run's communicator; NULL between runs */
    uint32_t generation;
} gp_train_control;

void gp_train_control_init(gp_train_control *control);
void gp_train_control_deinit(gp_train_control *control);

/* Reset stop, progress, step, epoch and stretches before the next training. No training may be
 * running. */
void gp_train_control_reset(gp_train_control *control);

/* Start or resume a stretch. Called by compute. */
void gp_train_control_span_begin(gp_train_control *control);

/* End the stretch. false: no stretch was running. */
bool gp_train_control_span_end(gp_train_control *control);

/* Count progress. The control thread uses the counter to detect a stalled compute thread. */
void gp_train_control_progress(gp_train_control *control);

/* Return GP_ECANCELED if an immediate stop was requested. step: committed steps, for the
 * message. */
gp_status gp_train_control_check(const gp_train_control *control, uint64_t step, gp_error *err);

/* Set the current run's communicator, so that other threads can abort its waits. NULL: it no longer
 * exists. */
void gp_train_control_set_comm(gp_train_control *control, gp_comm *comm, uint32_t generation);

/* Stop the training at once and abort all waits in the exchange. Callable from any thread. */
void gp_train_control_abort(gp_train_control *control);

/* Parameters of gp_trainer_new(). All pointers are borrowed until gp_trainer_free(), except
 * `weights`: only until gp_trainer_new() returns. */
typedef struct gp_trainer_setup {
    const gp_train_begin *begin;
    const char *netspec, *options; /* JSON texts */
    size_t netspec_bytes, options_bytes;
    const float *weights; /* initial parameters; NULL: none */
    size_t weights_count; /* float32 elements */
    const char *classes;  /* JSON array of class names in label order; NULL: the order in the data */
    size_t classes_bytes;
    gp_status (*open)(gp_store **out, const char *source, gp_data_role role, const gp_store_options *options,
                      gp_error *err); /* opens data; NULL: gp_store_open_with() */
    /* state from the previous group, if begin->restart > 0; NULL: this rank has none */
    gp_carry_over *held;

    /* rank, world, members, rendezvous; arena_bytes is filled in here */
    const gp_comm_rendezvous *group;
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
    gp_train_control *control;
    size_t shard_minimum; /* parameter count from which the ranks share one copy; 0: default */
} gp_trainer_setup;

/* Callbacks for training results. They run on the compute thread and must not block. */
typedef struct gp_train_sink {
    void *context;
    void (*record)(void *context, const gp_train_record *record);
    void (*validation)(void *context, const gp_train_validation *validation);
    /* Send a note to the client; this callback may wait. */
    void (*note)(void *context, const char *text, bool warning);

    /* validation progress; may be NULL */
    void (*validating)(void *context, const gp_train_validating *validating);
} gp_train_sink;

/* Create a trainer and join the group. On success *ready is filled in for the client. */
gp_status gp_trainer_new(gp_trainer **out, gp_train_ready *ready, const gp_trainer_setup *setup,
                         gp_error *err);
void gp_trainer_free(gp_trainer *trainer);

/* Prepare for a training that this rank joins later, while the other ranks continue. Do all local
 * work of gp_trainer_new() (options, network, data, memory, plans), with the same errors. Then free
 * everything except the open data, which take long to open. The backend keeps caches between plans
 * (compiled kernels, threads).
 *   setup  group: number of ranks after this rank has joined, and any rank; held: the earlier
 *          result of this function, or NULL
 *   out    state for gp_trainer_new() in the next group of that lease; set on failure too; NULL:
 *          nothing is kept
 * GP_ECANCELED: a stop was requested through `control`. */
gp_status gp_trainer_prepare(gp_carry_over **out, const gp_trainer_setup *setup, uint64_t lease,
                             gp_error *err);

/* Run the training until it ends. *done is always filled in with status, message and stop
 * reason. Return done->status. */
gp_status gp_trainer_run(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done);

/* Keep a copy of the training state and the open data for the lease's next group; afterwards the
 * trainer can only be freed. Must follow gp_trainer_run(), with any result, so that the state is
 * from a step boundary. NULL: the options do not request it (max-restarts 0), a device has lost the
 * state, or out of memory. Free the result with gp_carry_over_free(). */
gp_carry_over *gp_trainer_hold(gp_trainer *trainer, uint64_t lease);
uint64_t gp_carry_over_lease(const gp_carry_over *held); /* 0: held is NULL */
void gp_carry_over_free(gp_carry_over *held);            /* accepts NULL */

/* Return the weights blob (float32 elements), or the class names as a JSON array. Borrowed until
 * gp_trainer_free(). */
const float *gp_trainer_weights(const gp_trainer *trainer, size_t *count);
const char *gp_trainer_classes(const gp_trainer *trainer);

#endif
