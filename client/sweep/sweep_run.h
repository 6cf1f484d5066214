/* Controller of a sweep: run the trials as jobs of a pool, follow their metrics and keep the
 * journal. sweep_core.h makes the decisions. */
#ifndef GP_SWEEP_RUN_H
#define GP_SWEEP_RUN_H

#include <signal.h>

#include <gradpool/gradpool.h>

#include "client/sweep/sweep_folder.h"

/* What to run. All pointers are borrowed. */
typedef struct sweep_run_options {
    int64_t time_limit_ms; /* 0: none */
    bool retry;            /* begin with the trials that failed or were lost, and were not retried */

    /* Open the pool, and again after the link to its scheduler is lost. GP_ENOPOOL, for the second
     * and later calls: the pool was shut down. */
    gp_status (*open_pool)(void *context, bool again, gp_pool **pool, gp_error *err);

    /* Report that a trial has another state; may be NULL. */
    void (*on_trial)(void *context, const sweep *core, uint32_t trial);

    /* Called a few times a second while the sweep runs; may be NULL. */
    void (*on_poll)(void *context, const sweep *core);
    void (*note)(void *context, const char *text); /* may be NULL */
    void *context;
    const volatile sig_atomic_t *stop; /* 1: interrupt the trials, 2: leave at once */
} sweep_run_options;

/* Run a sweep in its folder until it is over.
 *   core    set to the trials, also after an error; free it with sweep_free()
 *   reason  set to why the sweep is over
 *   importance  set to the importance of each parameter as JSON (gp_search_importance()), or NULL;
 *               free it with gp_buffer_free()
 * GP_ENOPOOL: the pool was shut down; the next pool of that name runs the trials. Other errors: the
 * sweep could not start or continue. Trials that run continue without the controller. */
gp_status sweep_run(sweep **core, sweep_reason *reason, char **importance, sweep_folder *folder,
                    const sweep_plan *plan, const sweep_run_options *options, gp_error *err);

/* Read the trials of a sweep without running it. Outputs as for sweep_run(). */
gp_status sweep_load(sweep **core, char **importance, sweep_folder *folder, const sweep_plan *plan,
                     gp_error *err);

/* Determine whether a sweep without a controller has ended: all its trials have ended, and it would
 * start no other one. */
gp_status sweep_has_ended(bool *ended, sweep_folder *folder, const sweep_plan *plan, gp_error *err);

#endif
