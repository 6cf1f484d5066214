/* result_keeper.h: run detached calls whose process has exited.
 *
 * The keeper is a background job of the pool, `gradpool results keep`. The first process that
 * detaches a future submits it (results_keeper_ensure()). There is at most one keeper per pool; a
 * second one returns at once. The keeper watches the owners of all entries. When an owner exits or
 * releases an entry, the keeper claims the entry and runs the call on an elastic team for calls
 * with the same needs, which stores the result like any other. If a signal kills the keeper, the
 * pool starts it again, and the next keeper claims the entries of the killed one. */
#ifndef GP_RESULT_KEEPER_H
#define GP_RESULT_KEEPER_H

#include "client/pool/pool.h"

/* Run until every detached call of the pool has ended.
 *   stop   nonzero: release the calls and return GP_ECANCELED
 *   count  set to the number of calls that were started; also on an error
 * GP_ENOPOOL, GP_EPEER and others: no team for 30 s. */
gp_status result_keeper_run(gp_pool *pool, const volatile sig_atomic_t *stop, uint64_t *count, gp_error *err);

#endif
