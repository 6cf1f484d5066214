/* detach.h: futures whose results other processes fetch.
 *
 * A detached future has an entry in the results of the pool (client/pool/result_store.h). The entry
 * has the argument and the function of the call. When the call ends, the team stores the result
 * there. If the team ends before the call, it releases the entry, and the keeper starts the call
 * again (result_keeper.h). */
#ifndef GP_TEAM_DETACH_H
#define GP_TEAM_DETACH_H

#include "client/team/futures.h"

struct result_key;
struct result_store;

/* Store the outcome of a call in an entry that this process owns. A call whose outcome cannot be
 * written has the error GP_EIO as its result. Return false if a later try may succeed: another
 * process holds the lock, this process has no descriptors left, or the disk is full. */
bool detach_store(struct result_store *store, const struct result_key *key, gp_status status,
                  const void *data, size_t bytes);

/* Release an entry that this process owns.
 *   starts  number of times that this process started the call
 *   ended   the call has ended: no worker runs it any more
 * Return false if a later try may succeed. */
bool detach_release(struct result_store *store, const struct result_key *key, uint32_t starts, bool ended);

/* Store the end of a detached future, or release the entry if the team has ended. Return false if a
 * thread does so, because the result is large or the entry cannot be changed now: detach_finish()
 * then ends the future. */
bool detach_ended(gp_team *team, gp_future *future, const team_outcome *outcome);

/* End the futures whose outcomes the thread has stored. */
void detach_finish(gp_team *team);

/* Wait until the thread has stored its outcomes, or has tried once more and then released the
 * entries, and end their futures. */
void detach_finish_all(gp_team *team);

/* Let a future that has not ended store its result in an entry that this process has claimed.
 * GP_ENOMEM: out of memory. */
gp_status detach_adopt(gp_future *future, const struct result_key *key, gp_error *err);

/* Close the results of a team. */
void detach_close(gp_team *team);

#endif
