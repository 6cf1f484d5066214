/* train_run.h -- a training and its one run.  Private to the files client/train/train*.c.
 *
 * The states of a run:
 *
 *              lease            worker_lost                 grant
 *   PREPARED -------> WORKING --------------> RECOVERING ----------> REGROUPING
 *      ^              |  ^  |                     ^                   ^      |
 *      |              |  |  '-lost peer-> SUSPECT-' worker_lost       |      |
 *      |              |  '------------ attached, train_begin ---------|------'
 *      |              '--------- resize: all ranks paused, grant -----'
 *      |
 *      '--restart-- LOST, FAILED <-- any state: the cause of a failure is known, or did not arrive in time
 *
 * A restart releases the lease, asks for another one, and continues from the newest checkpoint.  In WORKING, the phase of
 * run->reform says what the group does.  Once rank 0 has sent the trained weights, the training succeeds even if another
 * rank or the scheduler fails later. */
#ifndef GP_TRAIN_RUN_H
#define GP_TRAIN_RUN_H

#include "client/pool/pool.h"
#include "client/train/reform.h"
#include "client/train/train_begin.h"
#include "client/train/train_join.h"
#include "client/train/train_report.h"
#include "common/base/system/timeout.h"
#include "common/data/store/augment.h"
#include "common/model/network.h"
#include "common/model/train_options.h"

struct gp_training {
    gp_network network; /* its weights are the initial ones before the run, and the trained ones after it */
    gp_graph *graph;    /* owned */
    gp_training_summary summary;
    struct gp_run *run; /* owned; NULL: the training has run */
};

enum { GP_RUN_POLL_MS = 50 };

typedef enum gp_run_state {
    GP_RUN_PREPARED,   /* no lease yet, or no longer */
    GP_RUN_WORKING,    /* train_begin was sent to the group; no failure is known */
    GP_RUN_SUSPECT,    /* `error` is the effect of a failure whose cause is not known */
    GP_RUN_RECOVERING, /* a worker of the group exited; run->reform decides what follows */
    GP_RUN_REGROUPING, /* the next group is known, but not attached */
    GP_RUN_FAILED,     /* `error` is the cause; the ranks are ending */
    GP_RUN_LOST,       /* as FAILED, but a restart in another lease may help */
} gp_run_state;

/* Why a group was left. */
typedef enum gp_run_pause {
    GP_RUN_RESIZED,   /* the number of workers changed */
    GP_RUN_DIED,      /* a worker exited */
    GP_RUN_RESTARTED, /* the training was restarted in another lease */
} gp_run_pause;

typedef struct gp_run {
    gp_pool *pool;                   /* the caller's; NULL before gp_training_run() */
    const gp_train_request *request; /* the caller's */
    gp_training *training;           /* owns this run */
    gp_train_options options;        /* as requested, then scaled to the first group */
    gp_augment augment;              /* parsed from options.augment */
    gp_begin_message message;        /* for every rank */
    reform reform; /* ranks of the group, which of them are ready and have ended, and what comes next */
    gp_train_report report; /* events and summary */
    gp_joiners joiners;     /* workers that will join the next group */
    gp_run_state state;
    gp_error error;           /* see `state`; message "": gp_run_describe_loss() writes it */
    gp_timeout deadline;      /* SUSPECT: to learn the cause; FAILED, LOST: for the ranks to end */
    int stop_sent;            /* highest request->stop that the workers have received */
    int64_t begun_ms;         /* when train_begin was sent */
    int64_t loading_noted_ms; /* when a long preparation was last reported; 0: not yet */
    /* The pause between two groups. */
    gp_run_pause pause;
    char cause[GP_TEXT_CAUSE]; /* of the pause */
    int64_t
        paused_ms; /* when the last step before the pause ended, or a failure was noticed; 0: not paused */
    int64_t last_step_ms;  /* when the last step of rank 0 was reported */
    gp_timeout alarm;      /* when REFORM_LATE is due; end_ms 0: never */
    uint64_t reunions;     /* pool->reunions when last checked */
    int64_t restarts;      /* restarts without a new step between them */
    uint64_t restart_step; /* last reported step at the last restart */
} gp_run;

/* ---- train.c ---- */

/* Record the cause of a failure; later ones are ignored.
 *   state  GP_RUN_FAILED or GP_RUN_LOST */
void gp_run_fail(gp_run *run, gp_run_state state, const gp_error *cause);
/* Record that a rank lost a peer, or could not be reached; another message tells why. */
void gp_run_suspect(gp_run *run, const gp_error *effect);
/* Send train_begin to all ranks of the present grant, which run->reform knows. */
gp_status gp_run_begin(gp_run *run, gp_error *err);
/* Report all pending events of the list (train_report.h). */
void gp_run_report_pending(gp_run *run, gp_pending_list *list);

/* ---- train_again.c ---- */

/* Let run->reform decide about an event, and carry its actions out. */
void gp_run_reform(gp_run *run, const reform_event *event);
/* Write the error of a training that a worker failure ended, with the last reported step.  The caller does that last: the
 * survivors may report more steps. */
gp_status gp_run_describe_loss(const gp_run *run, gp_error *err);
/* Handle what the scheduler reported, and the alarm.
 *   quiet  no message was pending */
void gp_run_watch(gp_run *run, bool quiet);
/* In GP_RUN_REGROUPING: attach to the next group, and send it train_begin. */
gp_status gp_run_regroup(gp_run *run, gp_error *err);
/* Return whether no rank works, or only ranks that have to end: the next generation is awaited. */
bool gp_run_is_between_groups(const gp_run *run);
/* Report that all ranks of another group are ready: the begin event, if it was not reported before, and the regroup event.
 *   before  number of workers of the last group that took steps, or else of the first group
 *   step    last step that the group has the state of */
void gp_run_report_regroup(gp_run *run, uint32_t before, uint64_t step);

/* ---- train_anew.c ---- */

/* Return the state after an error of the pool: whether another lease may help. */
gp_run_state gp_run_state_after(const gp_run *run, gp_status status);
/* Return whether the run is GP_RUN_LOST and may restart once more; count the restart. */
bool gp_run_may_restart(gp_run *run);
/* Prepare the run for another lease, from the newest checkpoint of this run if there is one. */
gp_status gp_run_restart(gp_run *run, const gp_error *why, gp_error *err);

/* ---- train_checkpoints.c ---- */

/* Resolve resume and run-id: find the checkpoint to continue from, or make a new run id.  The graph is known.
 * GP_EBUSY: checkpoint-path has checkpoints that the training would mix with its own.  GP_EINVAL: the checkpoint does not
 * fit the network or the options, or which run to continue is ambiguous.  GP_ENOENT, GP_ECORRUPT: no usable checkpoint. */
gp_status gp_run_choose_checkpoint(gp_run *run, gp_error *err);
/* Return the step of the newest checkpoint of this run in checkpoint-path, up to step `last`; 0: none. */
uint64_t gp_run_newest_checkpoint(const gp_run *run, uint64_t last);

/* ---- train_prepare.c ---- */

/* Read and check options, network and data of the request. */
gp_status gp_run_prepare(gp_run *run, gp_error *err);
/* Open a part of the data as the training reads it.
 *   classes  number the labels by the class names of that data set; NULL: by those of the source */
gp_status gp_run_open_data(gp_run *run, gp_store **store, const char *source, gp_data_role role,
                           const gp_store_info *classes, gp_error *err);
/* Apply --class-weights to each loss of the network that has class weights. */
gp_status gp_run_weigh_classes(gp_run *run, gp_error *err);

#endif
