/* Internal interface between the files of the state machine of a sweep.
 *
 *   sweep_core.c    events and actions
 *   sweep_trials.c  the table of trials, and the replay of the journal */
#ifndef GP_SWEEP_PARTS_H
#define GP_SWEEP_PARTS_H

#include "client/sweep/sweep_core.h"

struct sweep {
    sweep_config config;
    sweep_act act;
    void *context;
    sweep_trial *trials; /* [size] */
    uint32_t count, size;
    uint32_t added; /* trials of the user and repeats, which come in addition to trials_max */

    /* Trials that have not ended, or whose end is not durable, in the order of their start. */
    uint32_t active[SWEEP_CONCURRENT_MAX + SWEEP_WAITING_MAX];
    uint32_t active_count;
    uint64_t number, persisted;       /* numbers of the last line, and of the last durable line */
    uint32_t workers;                 /* that trials can lease; 0: unknown */
    uint32_t best;                    /* best trial; 0: none */
    uint32_t failures, first_failure; /* failures in a row; the trial of the first one */
    sweep_reason closing;             /* why no further trial is created; NONE: open */
    bool begun, failed, over;         /* failed: the journal failed */
    char text[SWEEP_TEXT_MAX];        /* explains `closing` */
};

static inline sweep_trial *trial_at(const sweep *s, uint32_t trial)
{
    return &s->trials[trial - 1];
}

static inline bool has_ended(const sweep_trial *trial)
{
    return trial->state >= SWEEP_DONE;
}

static inline bool is_better(const sweep *s, double value, double other)
{
    return s->config.minimize ? value < other : value > other;
}

/* Return the number of trials that the sweep will have, unless it ends early. */
static inline uint32_t trials_planned(const sweep *s)
{
    const uint32_t planned = s->config.trials_max + s->added;

    return planned < SWEEP_TRIALS_MAX ? planned : SWEEP_TRIALS_MAX;
}

/* Return whether another trial fits. */
bool sweep_has_room(const sweep *s, gp_error *err);

/* Return whether a trial comes in addition to trials_max: a request of the user, or a repeat. */
bool sweep_is_extra(const sweep_line *line);

/* Create a trial; its number is s->count.
 *   line  how, values, of, repeat and request
 * GP_ELIMIT: too many trials. */
gp_status sweep_trial_new(sweep *s, const sweep_line *line, gp_error *err);

/* Record a value at a rung. Report it to the search only once, even if an attempt repeats the
 * epochs since the last checkpoint. */
sweep_verdict sweep_trial_report(sweep *s, uint32_t number, uint32_t epoch, double value);

/* Set the final state of a trial and report it to the search. */
void sweep_trial_end(sweep *s, uint32_t number, sweep_state state, uint32_t epoch, double value,
                     const char *text);

/* Begin an attempt.
 *   lost  the previous attempt was lost */
void sweep_trial_attempt(sweep_trial *trial, uint32_t attempt, bool lost);

#endif
