/* reform.h: decide when a training leaves its group for another group of the same lease, and with
 * which actions.
 *
 *              .------------------- all ready: GO_ON ------------------------------.
 *              v                                                                   |
 *   BEGIN -> STEPS --change, fewer: PAUSE------> PAUSE --all stopped: FORM--> WAIT --grant--> BEGIN
 *              | ^--joining workers failed--.      ^ |                                         ^
 *              |--change, more: PREPARE--> PREPARE-' |                                         |
 *              |                            |        |                                         |
 *              '---- lost ------------------'--------'----> BREAK --all ended, grant-----------'
 *   any --- all have finished, or FAIL ---> OVER
 *
 * A training leaves a group for two reasons. First, a worker fails: the other ranks end their
 * current step, and the scheduler forms the lease again from the remaining workers. Second, the
 * size changes, because workers are free or a user requested it: all ranks stop at the same step
 * boundary, by a bit that travels with the gradients, and the training asks the scheduler to form
 * the lease again. In both cases the next group agrees on the furthest state of any rank
 * (worker/train/trainer_held.c).
 *
 * Joining workers prepare first: they open the data and build the network while the others take
 * steps. The others stop when all joining workers are prepared. Events in PREPARE:
 *
 *   a joining worker fails      the scheduler announces a change without it; wait for the
 *                               others, or return to STEPS if no other worker joins
 *   a joining worker refuses    no worker joins or is invited until a user requests it: KEEP; STEPS
 *                               continue
 *   another change              the new change counts; prepared workers stay prepared
 *   a rank fails                BREAK; joining workers learn the next generation and continue to
 *                               prepare, for the generation after it
 *   a stop, or the last step    the training ends without the joining workers
 *   another scheduler           STEPS; the prepared workers were released; the next change
 *                               invites them again
 *
 * Pure logic: reform_step(state, event) -> actions, without sockets or a clock. The driver
 * (train_again.c, or the simulation) executes the actions, and sends REFORM_LATE when the last
 * REFORM_DO_ALARM expires. Workers do the training and train.c interprets failures; this module
 * only decides which ranks to wait for, and the next phase. */
#ifndef GP_REFORM_H
#define GP_REFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/message/limits.h"

enum {
    REFORM_ACTIONS_MAX = 4,

    /* wait for the next generation: a replacement starts, and the other ranks end their step */
    REFORM_REPLACE_MS = 60000,

    /* wait for reports of the remaining ranks after the next generation is known */
    REFORM_FINAL_MESSAGE_MS = 5000,
    REFORM_PROVED_STEPS = 64, /* a joined worker that lasts this many steps was worth its cost */
};

typedef enum reform_phase {
    REFORM_BEGIN, /* attaching and sending train_begin; not all ranks are ready */
    REFORM_STEPS,
    REFORM_PREPARE, /* steps continue while joining workers prepare */
    REFORM_PAUSE,   /* the ranks were asked to stop at a step boundary; some have not stopped */

    /* a worker failed; wait for the remaining ranks to end, and for the next generation */
    REFORM_BREAK,
    REFORM_WAIT, /* all ranks have left the old group; wait for the next generation */
    REFORM_OVER,
} reform_phase;

typedef enum reform_end { REFORM_PAUSED, REFORM_FINISHED, REFORM_FAILED } reform_end;

typedef enum reform_event_kind {
    REFORM_READY, /* rank, step: train_ready arrived */
    REFORM_STEP,  /* step: rank 0 reported it */
    REFORM_ENDED, /* rank, end: train_done, or a rejected train_begin */
    REFORM_LOST,  /* rank: a worker of the current group failed */
    REFORM_GRANT, /* workers: the lease has a new generation */

    /* workers: size of the generation that was attached; a newer one may already exist */
    REFORM_ATTACHED,
    REFORM_CHANGE,   /* workers, asked, prepared: the scheduler announced a new size */
    REFORM_PREPARED, /* prepared: total number of prepared workers */
    REFORM_UNFIT,    /* a joining worker cannot join */

    /* connected to a new scheduler: old requests get no reply, and prepared workers were
     * released */
    REFORM_REUNION,
    REFORM_STOPPED, /* stop requested: from now on no group is left because of its size */
    REFORM_LATE,    /* the last alarm expired */
} reform_event_kind;

typedef struct reform_event {
    reform_event_kind kind;
    uint32_t rank, workers, prepared;
    uint64_t step;
    reform_end end;
    bool asked; /* a user requested it; false: the scheduler offers free workers */
    bool hard;  /* REFORM_STOPPED: stop at once */
} reform_event;

typedef enum reform_why {
    REFORM_WHY_LOST,         /* a worker failed, and the training may not continue */
    REFORM_WHY_ALONE,        /* the only worker left after earlier failures failed */
    REFORM_WHY_STATE,        /* no remaining worker has the state */
    REFORM_WHY_NOT_REPLACED, /* no new generation came in time */
    REFORM_WHY_SHORT_LIVED,  /* KEEP: joined workers failed repeatedly */
    REFORM_WHY_UNFIT,        /* KEEP: a joining worker cannot join */
} reform_why;

typedef enum reform_action_kind {
    /* send train_begin with `prepare` for `workers` ranks to joining workers not invited yet */
    REFORM_DO_PREPARE,
    REFORM_DO_PAUSE, /* send train_stop with `pause` to rank 0 */
    REFORM_DO_FORM,  /* send lease_form */
    REFORM_DO_BEGIN, /* attach, and send train_begin with `restart` */
    REFORM_DO_GO_ON, /* report the change from `workers` to world, after `step` */
    REFORM_DO_KEEP,  /* resize the lease to `workers`, for the reason `why` */
    REFORM_DO_ALARM, /* set the alarm to `ms`; 0: clear it */
    REFORM_DO_FAIL,  /* end the training with the error `why` */
} reform_action_kind;

typedef struct reform_action {
    reform_action_kind kind;
    uint32_t workers, restart, ms;
    uint64_t step;
    reform_why why;
} reform_action;

/* State of the membership. Everyone may read it; only reform_step() writes it. */
typedef struct reform {
    reform_phase phase;
    uint32_t max_restarts; /* limit for in_a_row; 0: a worker failure ends the training */
    uint32_t world, left;  /* ranks in the current and in the previous group */
    uint32_t before;       /* size of the last group that was ready, or else the first group */
    uint32_t ready, ended;
    uint8_t end_of[GP_MEMBERS_MAX]; /* 1 + reform_end of each rank; 0: has not ended */
    uint32_t paused;                /* ended ranks that paused */
    bool broken;                    /* a worker failure broke the current group */
    bool grown;                     /* the current group is larger than the previous one */
    bool granted;                   /* the next generation is known; `next` is its size */
    uint32_t next;
    uint32_t wanted; /* announced size of the lease; 0: unchanged */
    bool wanted_asked;
    uint32_t prepared; /* joining workers that are prepared */
    bool stopped, stopped_hard;
    uint64_t step;        /* last reported step */
    uint64_t begun_at;    /* step after which the current group began */
    uint64_t told;        /* last reported step when the previous group was left */
    uint32_t restarts;    /* number of groups left */
    uint32_t in_a_row;    /* worker failures without a step in between */
    uint32_t short_lived; /* failures in a row of grown groups before REFORM_PROVED_STEPS */
    bool barred;          /* take no more workers unless a user requests it */
    bool kept;            /* the scheduler was informed of `barred` */
    reform_why why;       /* reason of REFORM_DO_FAIL; undefined before */
} reform;

/* Return whether ranks take steps, or are about to. */
static inline bool reform_is_stepping(const reform *r)
{
    return r->phase == REFORM_STEPS || r->phase == REFORM_PREPARE;
}

/* Start the state machine for a training on `workers` workers. Call it before sending
 * train_begin. */
void reform_init(reform *r, uint32_t workers, uint32_t max_restarts);

/* Process one event. Return the number of actions written; execute them in order. */
size_t reform_step(reform *r, const reform_event *event, reform_action actions[REFORM_ACTIONS_MAX]);

#endif
