/* results.h: the keeper job, which ends detached calls whose process has exited. */
#ifndef GP_RESULTS_H
#define GP_RESULTS_H

#include "client/pool/pool.h"
#include "client/pool/result_store.h"

/* Submit the keeper job, unless a keeper runs or was requested within the last seconds. Uses a
 * separate handle of the pool. Errors: as for gp_pool_open() and gp_job_submit(). */
gp_status results_keeper_ensure(const gp_pool *pool, result_store *store, gp_error *err);

#endif
