/* results.h: wait for results with an interrupt, and submit the keeper job, which ends detached
 * calls whose process has exited. */
#ifndef GP_RESULTS_H
#define GP_RESULTS_H

#include <signal.h>

#include "client/pool/pool.h"
#include "client/pool/result_store.h"

/* Submit the keeper job, unless a keeper runs or was requested within the last seconds. Uses a
 * separate handle of the pool.
 *   timeout_ms  time limit for the reply; 0: the limits of gp_pool_open() and gp_job_submit()
 * Errors: as for result_keeper_wanted(), gp_pool_open() and gp_job_submit(). */
gp_status results_keeper_ensure(const gp_pool *pool, result_store *store, int timeout_ms, gp_error *err);

/* Wait for a result as gp_result_wait() does.
 *   stop  ends the wait with GP_ECANCELED when a signal handler makes it nonzero; NULL: none */
gp_status results_wait(gp_pool *pool, const char *name, int timeout_ms, const volatile sig_atomic_t *stop,
                       gp_status *ended, void **data, size_t *bytes, gp_error *err);

#endif
