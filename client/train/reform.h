/* reform.h -- when a training leaves its group for another one of the same lease, and what has to be done for it.
 *
 *              .------------------------ all ready: GO_ON -----------------------------------.
 *              v                                                                             |
 *   BEGIN -> STEPS --change, fewer: PAUSE--------------------> PAUSE --all have stopped: FORM--> WAIT --grant: BEGIN
 *              | ^--newcomers died, refuse--.                    ^ |                                          ^
 *              |--change, more: PREPARE--> PREPARE --all have----' |                                          |
 *              |                              |                    |                                          |
 *              '---- lost --------------------'--------------------'----> BREAK --all have ended, grant-------'
 *   any --- all have finished, or FAIL ---> OVER
 *
 * A group is left for two reasons.  A member died: the others end the step that they are in, and the scheduler forms the
 * lease again by itself, of those who live.  Or its size is to change (a worker is free again, somebody asked): all ranks
 * stop at one step boundary, by a bit that travels with the gradients, and the scheduler is asked to form the lease
 * again.  Either way the next group agrees on the furthest state of any of its ranks (worker/train/trainer_held.c).
 *
 * Who joins prepares first: it opens the data and builds what a rank needs while the others take steps, and they stop when
 * all have done so.  What happens in PREPARE:
 *
 *   a newcomer dies           the scheduler tells a change without it: the others are waited for, or nobody (STEPS)
 *   a newcomer refuses        nobody joins, nobody is invited again unless somebody asks: KEEP, and STEPS go on
 *   another change            that one counts; who had prepared stays so
 *   a rank dies               BREAK; who prepares is told of the next generation and goes on preparing, for the one after
 *   a stop, the last step     the training ends without them
 *   another scheduler         STEPS; who prepared was let go, and is invited again with the next change
 *
 * Pure: reform_step(state, event) -> actions.  No sockets, no clock: who drives it (train_again.c, the simulation)
 * carries the actions out, and says REFORM_LATE when the last REFORM_ALARM is over.  What training does is the workers'
 * business, what failures mean is train.c's: here it is only decided who is waited for, and what comes next. */
#ifndef GP_REFORM_H
#define GP_REFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/message/limits.h"

enum {
    REFORM_ACTIONS_MAX = 4,
    REFORM_REPLACE_MS = 60000,   /* for the next generation: a replacement starts, survivors end their step */
    REFORM_LAST_WORDS_MS = 5000, /* for survivors to send their news, once the next generation is there */
    REFORM_PROVED_STEPS = 64,    /* a worker that joined and lived so long was worth it */
};

typedef enum reform_phase {
    REFORM_BEGIN, /* attaching, train_begin; not all ranks are ready */
    REFORM_STEPS,
    REFORM_PREPARE, /* steps go on; those who will join prepare */
    REFORM_PAUSE,   /* the ranks were asked to stop at a step boundary; not all have */
    REFORM_BREAK,   /* a member died; survivors that have not ended are waited for, and the next generation */
    REFORM_WAIT,    /* nobody is in the old group; the next generation is awaited */
    REFORM_OVER,
} reform_phase;

typedef enum reform_end { REFORM_PAUSED, REFORM_FINISHED, REFORM_FAILED } reform_end;

typedef enum reform_event_kind {
    REFORM_READY, /* rank, step: train_ready */
    REFORM_STEP,  /* step: news of it */
    REFORM_ENDED, /* rank, end: train_done, or the refusal of train_begin */
    REFORM_LOST,  /* rank: a member of the present group died */
    REFORM_GRANT, /* workers: the lease has another generation */
    REFORM_ATTACHED, /* workers: of the generation that was attached to: yet another one may have come meanwhile */
    REFORM_CHANGE,   /* workers, asked: the lease is to have so many; prepared */
    REFORM_PREPARED, /* prepared: so many of those who will join, in all */
    REFORM_UNFIT,    /* one of them cannot */
    REFORM_REUNION, /* another scheduler: what was asked of the one before is not answered, who prepared was let go */
    REFORM_STOPPED, /* it was told to stop: no group is left any more for the sake of its size */
    REFORM_LATE,    /* the time of the last alarm is over */
} reform_event_kind;

typedef struct reform_event {
    reform_event_kind kind;
    uint32_t rank, workers, prepared;
    uint64_t step;
    reform_end end;
    bool asked; /* by somebody, not by the scheduler because workers are free */
    bool hard;  /* REFORM_STOPPED: at once */
} reform_event;

typedef enum reform_why {
    REFORM_WHY_LOST,         /* a death, and it may not go on */
    REFORM_WHY_ALONE,        /* the death of the only one that the deaths before had left */
    REFORM_WHY_STATE,        /* nobody is left who had the state */
    REFORM_WHY_NOT_REPLACED, /* no other generation came */
    REFORM_WHY_SHORT_LIVED,  /* KEEP: those who joined died, again and again */
    REFORM_WHY_UNFIT,        /* KEEP: one that was to join cannot */
} reform_why;

typedef enum reform_action_kind {
    REFORM_DO_PREPARE, /* train_begin with `prepare` to those who will join and were not told, for `workers` ranks */
    REFORM_DO_PAUSE, /* train_stop with `pause`, to rank 0 */
    REFORM_DO_FORM,  /* lease_form */
    REFORM_DO_BEGIN, /* attach, train_begin with `restart` */
    REFORM_DO_GO_ON, /* tell: before -> world workers, after that step */
    REFORM_DO_KEEP,  /* lease_resize of our own lease to `workers`: why */
    REFORM_DO_ALARM, /* ms; 0 = none any more */
    REFORM_DO_FAIL,  /* why */
} reform_action_kind;

typedef struct reform_action {
    reform_action_kind kind;
    uint32_t workers, restart, ms;
    uint64_t step;
    reform_why why;
} reform_action;

/* All of it may be read; only reform_step() writes. */
typedef struct reform {
    reform_phase phase;
    uint32_t max_restarts; /* breaks in a row without a step between; 0 = a death ends the training */
    uint32_t world, left;  /* ranks of the present group, and of the one before */
    uint32_t before;       /* workers of the last group that was ready, or else of the first group */
    uint32_t ready, ended;
    uint8_t end_of[GP_MEMBERS_MAX]; /* 1 + reform_end; 0 = it has not ended */
    uint32_t paused;                /* of those that ended */
    bool broken;                    /* the present group was left because a member died */
    bool grown;                     /* it has more ranks than the one before */
    bool granted;                   /* the next generation is there; `next` workers */
    uint32_t next;
    uint32_t wanted; /* size that the lease is to have; 0 = as it is */
    bool wanted_asked;
    uint32_t prepared; /* of those who will join */
    bool stopped, stopped_hard;
    uint64_t step;        /* the last of which news came */
    uint64_t begun_at;    /* the step after which the present group began */
    uint64_t told;        /* the last step of which news came, when the group before was left */
    uint32_t restarts;    /* groups that were left */
    uint32_t in_a_row;    /* breaks without a step between */
    uint32_t short_lived; /* breaks in a row of groups that had grown, before they had proved themselves */
    bool barred;          /* it takes no more workers unless it is asked to */
    bool kept;            /* and the scheduler was told */
    reform_why why;       /* of REFORM_DO_FAIL; meaningless before */
} reform;

/* Ranks take steps, or all are about to. */
static inline bool reform_is_stepping(const reform *r)
{
    return r->phase == REFORM_STEPS || r->phase == REFORM_PREPARE;
}

/* A training that begins on `workers`: train_begin is about to be sent. */
void reform_init(reform *r, uint32_t workers, uint32_t max_restarts);

/* One event.  Returns how many actions were written, to be carried out in order. */
size_t reform_step(reform *r, const reform_event *event, reform_action actions[REFORM_ACTIONS_MAX]);

#endif
