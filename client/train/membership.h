/* membership.h: decide when a training leaves its group for another group of the same lease, and
 * with which actions.
 *
 *              .------------------- all ready: RESUME ------------------------------.
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
 * (worker/train/carry_over.c).
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
 * Pure logic: membership_step(state, event) -> actions, without sockets or a clock. The driver
 * (train_recover.c, or the simulation) executes the actions, and sends MEMBERSHIP_LATE when the
 * last MEMBERSHIP_DO_ALARM expires. Workers do the training and train.c interprets failures;
 * this module only decides which ranks to wait for, and the next phase. */
#ifndef GP_MEMBERSHIP_H
#define GP_MEMBERSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/message/limits.h"

enum {
    MEMBERSHIP_ACTIONS_MAX = 4,

    /* wait for the next generation: a replacement starts, and the other ranks end their step */
    MEMBERSHIP_REPLACE_MS = 60000,

    /* wait for reports of the remaining ranks after the next generation is known */
    MEMBERSHIP_FINAL_MESSAGE_MS = 5000,
    MEMBERSHIP_PROVED_STEPS = 64, /* a joined worker that lasts this many steps was worth its cost */
};

typedef enum membership_phase {
    MEMBERSHIP_BEGIN, /* attaching and sending train_begin; not all ranks are ready */
    MEMBERSHIP_STEPS,
    MEMBERSHIP_PREPARE, /* steps continue while joining workers prepare */
    MEMBERSHIP_PAUSE,   /* the ranks were asked to stop at a step boundary; some have not stopped */

    /* a worker failed; wait for the remaining ranks to end, and for the next generation */
    MEMBERSHIP_BREAK,
    MEMBERSHIP_WAIT, /* all ranks have left the old group; wait for the next generation */
    MEMBERSHIP_OVER,
} membership_phase;

typedef enum membership_end { MEMBERSHIP_PAUSED, MEMBERSHIP_FINISHED, MEMBERSHIP_FAILED } membership_end;

typedef enum membership_event_kind {
    MEMBERSHIP_READY, /* rank, step: train_ready arrived */
    MEMBERSHIP_STEP,  /* step: rank 0 reported it */
    MEMBERSHIP_ENDED, /* rank, end: train_done, or a rejected train_begin */
    MEMBERSHIP_LOST,  /* rank: a worker of the current group failed */
    MEMBERSHIP_GRANT, /* workers: the lease has a new generation */

    /* workers: size of the attached generation; a newer one may already exist */
    MEMBERSHIP_ATTACHED,
    MEMBERSHIP_CHANGE,   /* workers, asked, prepared: the scheduler announced a new size */
    MEMBERSHIP_PREPARED, /* prepared: prepared workers in total */
    MEMBERSHIP_UNFIT,    /* a joining worker cannot join */

    /* connected to a new scheduler: old requests get no reply, and prepared workers were
     * released */
    MEMBERSHIP_RECONNECTED,
    MEMBERSHIP_STOPPED, /* stop requested: from now on no group is left because of its size */
    MEMBERSHIP_LATE,    /* the last alarm expired */
} membership_event_kind;

typedef struct membership_event {
    membership_event_kind kind;
    uint32_t rank, workers, prepared;
    uint64_t step;
    membership_end end;
    bool asked; /* a user requested it; false: the scheduler offers free workers */
    bool hard;  /* MEMBERSHIP_STOPPED: stop at once */
} membership_event;

typedef enum membership_reason {
    MEMBERSHIP_REASON_LOST,         /* a worker failed, and the training may not continue */
    MEMBERSHIP_REASON_ALONE,        /* the only worker left after earlier failures failed */
    MEMBERSHIP_REASON_STATE,        /* no remaining worker has the state */
    MEMBERSHIP_REASON_NOT_REPLACED, /* no new generation came in time */
    MEMBERSHIP_REASON_SHORT_LIVED,  /* KEEP: joined workers failed repeatedly */
    MEMBERSHIP_REASON_UNFIT,        /* KEEP: a joining worker cannot join */
} membership_reason;

typedef enum membership_action_kind {
    /* send train_begin with `prepare` for `workers` ranks to joining workers not invited yet */
    MEMBERSHIP_DO_PREPARE,
    MEMBERSHIP_DO_PAUSE,  /* send train_stop with `pause` to rank 0 */
    MEMBERSHIP_DO_FORM,   /* send lease_form */
    MEMBERSHIP_DO_START,  /* attach, and send train_begin with `restart` */
    MEMBERSHIP_DO_RESUME, /* report the change from `workers` to world, after `step` */
    MEMBERSHIP_DO_KEEP,   /* resize the lease to `workers`, for the reason `why` */
    MEMBERSHIP_DO_ALARM,  /* set the alarm to `ms`; 0: clear it */
    MEMBERSHIP_DO_FAIL,   /* end the training with the error `why` */
} membership_action_kind;

typedef struct membership_action {
    membership_action_kind kind;
    uint32_t workers, restart, ms;
    uint64_t step;
    membership_reason why;
} membership_action;

/* State of the membership. Everyone may read it; only membership_step() writes it. */
typedef struct membership {
    membership_phase phase;
    uint32_t max_restarts; /* limit for in_a_row; 0: a worker failure ends the training */
    uint32_t world, left;  /* ranks in the current and in the previous group */
    uint32_t before;       /* size of the last reported group, or else of the first group */
    bool is_reported;      /* the current group was reported: its ranks are ready and have the state */
    uint32_t ready, ended;
    uint8_t end_of[GP_MEMBERS_MAX]; /* 1 + membership_end of each rank; 0: has not ended */
    uint32_t paused;                /* ended ranks that paused */
    bool broken;                    /* a worker failure broke the current group */
    bool grown;                     /* the current group is larger than the previous one */
    bool granted;                   /* the next generation is known; `next` is its size */
    uint32_t next;
    uint32_t wanted; /* announced size of the lease; 0: unchanged */
    bool wanted_asked;
    uint32_t prepared; /* joining workers that are prepared */
    bool stopped, stopped_hard;
    uint64_t step;         /* last reported step */
    uint64_t begun_at;     /* step after which the current group began */
    uint64_t reported;     /* last reported step when the previous group was left */
    uint32_t restarts;     /* number of groups left */
    uint32_t in_a_row;     /* worker failures without a step in between */
    uint32_t short_lived;  /* failures in a row of grown groups before MEMBERSHIP_PROVED_STEPS */
    bool barred;           /* take no more workers unless a user requests it */
    bool kept;             /* the scheduler was informed of `barred` */
    membership_reason why; /* reason of MEMBERSHIP_DO_FAIL; undefined before */
} membership;

/* Return whether ranks take steps, or are about to. */
static inline bool membership_is_stepping(const membership *r)
{
    return r->phase == MEMBERSHIP_STEPS || r->phase == MEMBERSHIP_PREPARE;
}

/* Return the size of the last reported group, or else of the first group. A group is reported when
 * its ranks are ready and have the state. 0: no group yet. */
static inline uint32_t membership_reported_size(const membership *r)
{
    return r->is_reported ? r->world : r->before;
}

/* Start the state machine for a training on `workers` workers. Call it before sending
 * train_begin. */
void membership_init(membership *r, uint32_t workers, uint32_t max_restarts);

/* Process one event. Return the number of actions written; execute them in order. */
size_t membership_step(membership *r, const membership_event *event,
                       membership_action actions[MEMBERSHIP_ACTIONS_MAX]);

#endif
