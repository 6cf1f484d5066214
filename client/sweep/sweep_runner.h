/* Internal interface between the files of the controller of a sweep.
 *
 *   sweep_run.c   actions of the state machine, requests of the user, the pool, and the loop
 *   sweep_jobs.c  jobs of the trials: submit them, follow their values, and report their ends */
#ifndef GP_SWEEP_RUNNER_H
#define GP_SWEEP_RUNNER_H

#include "client/sweep/sweep_points.h"
#include "client/sweep/sweep_run.h"
#include "client/sweep/sweep_top.h"
#include "client/sweep/trial_result.h"

/* Identity of a job. In another pool, such as that of the next allocation of a cluster, the number
 * may name another job, which was submitted at another time. */
typedef struct sweep_job_id {
    uint64_t number;      /* 0: not submitted yet */
    int64_t submitted_ms; /* wall clock on the pool's host */
} sweep_job_id;

/* What the controller knows about the job of a trial. */
typedef struct sweep_job {
    uint32_t attempt;
    sweep_job_id id;
    uint32_t workers;
    bool wanted, running, stop;
    bool ended;            /* clean_ended() must remove its files */
    int64_t unreadable_ms; /* when its result could first not be read; 0: never */
    int64_t canceled_ms;
    trial_reader reader;
    sweep_state shown;
} sweep_job;

/* The controller. */
typedef struct sweep_runner {
    sweep *core;
    sweep_points *points;
    sweep_folder *folder;
    const sweep_plan *plan;
    const sweep_run_options *options;
    gp_pool *pool;
    gp_buffer lines;  /* not written yet */
    uint64_t number;  /* of the last line */
    gp_error failure; /* of the journal */
    bool failed;
    sweep_job *jobs;        /* [SWEEP_TRIALS_MAX], by trial; NULL: the sweep is only read */
    sweep_top top;          /* trials whose models stay, unless all models do */
    uint32_t unlinked_best; /* best trial, if its model could not become best.onnx; 0: none */
    int poll_ms;
    bool over;
    sweep_reason reason;
    char text[SWEEP_TEXT_MAX];
} sweep_runner;

/* Return what is known about the job of a trial; NULL: the sweep is only read. */
static inline sweep_job *sweep_runner_job(const sweep_runner *r, uint32_t trial)
{
    return r->jobs != NULL ? &r->jobs[trial - 1] : NULL;
}

/* Pass a message to sweep_run_options.note. */
void sweep_runner_note(const sweep_runner *r, const char *text);

/* Pass an event to the state machine, and perform its actions. */
void sweep_runner_feed(sweep_runner *r, sweep_event event);

/* Submit the jobs of new attempts, and report what happened to the others since the last call. */
gp_status sweep_jobs_poll(sweep_runner *r, gp_error *err);

#endif
