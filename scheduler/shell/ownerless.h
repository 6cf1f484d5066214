/* ownerless.h: end pools whose scheduler was killed and whose owner has exited.
 *
 * The workers of such a pool exit when they have had no scheduler for a few seconds, and leave its
 * files. The next scheduler that the user starts, for any pool, removes them. */
#ifndef GP_OWNERLESS_H
#define GP_OWNERLESS_H

#include "scheduler/process/orphans.h"
#include "scheduler/shell/pool_record.h"

/* Return whether the recorded pool had an owner that has exited. Then kill its workers, wait until
 * they have exited, and remove the record and their sockets. The caller holds the lock of the pool;
 * *orphans is set to the workers that are left. */
bool ownerless_end(const gp_pool_record *record, gp_orphans *orphans, const gp_paths *paths);

/* End all other such pools of this user, and remove their files.
 *   own  paths of the pool of this scheduler */
void ownerless_end_others(const gp_paths *own);

#endif
