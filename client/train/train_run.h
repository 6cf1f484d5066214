/* train_run.h: a training and its single run. Private to client/train/train*.c.
 *
 * States of a run:
 *
 *              lease            worker_lost                 grant
 *   PREPARED -------> WORKING --------------> RECOVERING ----------> REGROUPING
 *      ^              |  ^  |                     ^                   ^      |
 *      |              |  |  '-lost peer-> SUSPECT-' worker_lost       |      |
 *      |              |  '------------ attached, train_begin ---------|------'
 *      |              '--------- resize: all ranks paused, grant -----'
 *      |
 *      '--restart-- LOST, FAILED <-- any state: a failure's cause is known, or late
 *
 * A restart releases the lease, requests another, and continues from the newest checkpoint. In
 * WORKING, the phase of run->membership describes the group's state. After rank 0 has sent the
 * trained weights, the training succeeds even if another rank or the scheduler fails. */
#ifndef GP_TRAIN_RUN_H
#define GP_TRAIN_RUN_H

#include "client/pool/pool.h"
#include "client/train/membership.h"
#include "client/train/train_begin.h"
#include "client/train/scale_up.h"
#include "client/train/train_report.h"
#include "common/base/system/timeout.h"
#include "common/data/store/augment.h"
#include "common/model/network.h"
#include "common/model/train_options.h"

struct gp_training {
    gp_network network; /* has the initial weights before the run, and the trained ones after it */
    gp_graph *graph;    /* owned */
    gp_training_summary summary;
    struct gp_run *run; /* owned; NULL: the training has run */
};

enum { GP_RUN_POLL_MS = 50 };

typedef enum gp_run_state {
    GP_RUN_PREPARED,   /* no lease yet, or released */
    GP_RUN_WORKING,    /* train_begin was sent to the group; no failure is known */
    GP_RUN_SUSPECT,    /* `error` is the effect of a failure with unknown cause */
    GP_RUN_RECOVERING, /* a worker of the group failed; run->membership decides the next phase */
    GP_RUN_REGROUPING, /* the next group is known but not attached */
    GP_RUN_FAILED,     /* `error` is the cause; the ranks are ending */
    GP_RUN_LOST,       /* like FAILED, but a restart with another lease may help */
} gp_run_state;

/* Reason why a group was left. */
typedef enum gp_run_pause {
    GP_RUN_RESIZED,   /* the worker count changed */
    GP_RUN_DIED,      /* a worker failed */
    GP_RUN_RESTARTED, /* the training restarted with another lease */
} gp_run_pause;

typedef struct gp_run {
    gp_pool *pool;                   /* owned by the caller; NULL before gp_training_run() */
    const gp_train_request *request; /* owned by the caller */
    gp_training *training;           /* owns this run */
    gp_train_options options;        /* as requested, then scaled to the first group */
    gp_augment augment;              /* parsed from options.augment */
    gp_begin_message message;        /* message for every rank */
    membership membership;           /* membership: ranks in the group and the next phase */
    gp_train_report report;          /* events and summary */
    gp_joiners joiners;              /* workers that will join the next group */
    gp_run_state state;
    gp_error error; /* see `state`; message "": gp_run_describe_loss() writes it */

    /* SUSPECT: time limit for the cause; FAILED, LOST: for the ranks to end */
    gp_timeout deadline;
    int stop_sent;            /* highest value of request->stop that the workers have received */
    int64_t begun_ms;         /* time when train_begin was sent */
    int64_t loading_noted_ms; /* when a long preparation was last reported; 0: never */

    /* State of the pause between two groups. */
    gp_run_pause pause;
    char cause[GP_TEXT_CAUSE]; /* reason of the pause */

    /* start of the pause: the last step ended, or a failure was noticed; 0: not paused */
    int64_t paused_ms;
    int64_t last_step_ms;  /* time of the last step report from rank 0 */
    gp_timeout alarm;      /* time of the next MEMBERSHIP_LATE; end_ms 0: never */
    uint64_t reunions;     /* pool->reunions at the last check */
    int64_t restarts;      /* restarts without a new step between them */
    uint64_t restart_step; /* last reported step at the last restart */
    uint64_t resumed_step; /* checkpoint that a restart chose; 0: none, or all ranks have read it */
    char requested_resume[sizeof(((gp_train_options *)0)->resume)]; /* `resume` before any restart */
} gp_run;

/* ---- train.c ---- */

/* Record the cause of a failure. Later causes are ignored.
 *   state  GP_RUN_FAILED or GP_RUN_LOST */
void gp_run_fail(gp_run *run, gp_run_state state, const gp_error *cause);

/* Send train_begin to all ranks of the current grant, whose size run->membership knows. */
gp_status gp_run_begin(gp_run *run, gp_error *err);

/* Report all pending events in a list (train_report.h). */
void gp_run_report_pending(gp_run *run, gp_pending_list *list);

/* ---- train_recover.c ---- */

/* Pass an event to run->membership and execute the resulting actions. */
void gp_run_membership(gp_run *run, const membership_event *event);

/* Fail with the error of a training that ended after a worker failure; the message contains the
 * last reported step. Call it last, because the other ranks may report more steps. */
gp_status gp_run_describe_loss(const gp_run *run, gp_error *err);

/* Handle reports of the scheduler, and the alarm.
 *   quiet  no message was pending */
void gp_run_watch(gp_run *run, bool quiet);

/* In GP_RUN_REGROUPING: attach to the next group and send train_begin. */
gp_status gp_run_regroup(gp_run *run, gp_error *err);

/* Return whether the run waits for the next generation: no rank works, or only ranks that must
 * end. */
bool gp_run_is_between_groups(const gp_run *run);

/* Report that all ranks of a new group are ready: the begin event, if not reported before, and the
 * regroup event.
 *   before  size of the last group that took steps, or else of the first group
 *   step    last step whose state the group has */
void gp_run_report_regroup(gp_run *run, uint32_t before, uint64_t step);

/* ---- train_restart.c ---- */

/* Return the state after a pool error: GP_RUN_LOST if another lease may help, otherwise
 * GP_RUN_FAILED. */
gp_run_state gp_run_state_after(const gp_run *run, gp_status status);

/* Return whether the run is GP_RUN_LOST and may restart after the error `why`. Count the restart,
 * unless `why` reports that the checkpoint of the last restart is damaged. */
bool gp_run_may_restart(gp_run *run, const gp_error *why);

/* Prepare the run for another lease. It resumes from the newest checkpoint or, if `why` reports
 * that the checkpoint of the last restart is damaged, from the next one to try. Without a
 * checkpoint, the run starts as requested. GP_EIO, GP_ENOMEM: cannot list the checkpoints.
 * GP_ELIMIT: the same without a free descriptor, or the path of the checkpoint is too long. */
gp_status gp_run_restart(gp_run *run, const gp_error *why, gp_error *err);

/* ---- train_checkpoints.c ---- */

/* Resolve resume and run-id: find the checkpoint to continue from, or create a run id. The graph
 * must be known. GP_EBUSY: checkpoint-path contains checkpoints from another run. GP_EINVAL: the
 * checkpoint does not match the network or the options, or several runs could be continued.
 * GP_ENOENT, GP_ECORRUPT: no usable checkpoint. */
gp_status gp_run_choose_checkpoint(gp_run *run, gp_error *err);

/* Find this run's newest checkpoint in checkpoint-path, up to step `last`, whose record is intact
 * and whose tensor file has the right size.
 *   step  0: none */
gp_status gp_run_newest_checkpoint(uint64_t *step, const gp_run *run, uint64_t last, gp_error *err);

/* ---- train_prepare.c ---- */

/* Read and check the options, network and data of the request. */
gp_status gp_run_prepare(gp_run *run, gp_error *err);

/* Open a part of the data in the same way as the training.
 *   classes  data set whose class names number the labels; NULL: the source itself */
gp_status gp_run_open_data(gp_run *run, gp_store **store, const char *source, gp_data_role role,
                           const gp_store_info *classes, gp_error *err);

/* Apply --class-weights to each loss of the network that supports class weights.
 *   classes  names and number of the classes by which the workers number the labels; NULL: those of
 *            the data */
gp_status gp_run_weigh_classes(gp_run *run, const gp_store_info *classes, gp_error *err);

#endif
