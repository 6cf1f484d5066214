/* payloads.h: track which worker has which shared payload. Each payload is sent once per worker,
 * kept while in use, and then released.
 *
 *   absent --descriptor sent--> mapped --GP_CALL_RELEASE--> releasing --ring empty--> absent
 *
 * In the ring, a release follows all calls that name the payload, so it may be sent at any time.
 * Only an empty ring proves that the worker has executed it. A worker accepts GP_LINK_BLOBS_MAX
 * payloads, including those being released. Beyond that number the oldest are released, and sent
 * again when a call needs them. */
#ifndef GP_TEAM_PAYLOADS_H
#define GP_TEAM_PAYLOADS_H

#include "client/team/shared.h"
#include "client/team/worker.h"

typedef struct payload_entry {
    gp_broadcast *shared;
    uint64_t workers; /* bit w - 1: worker w has the payload */

    /* bit w - 1: a release is in the ring of worker w, which may still have the payload */
    uint64_t releasing;
} payload_entry;

/* Payloads of one team. Initialize with zeros. */
typedef struct team_payloads {
    payload_entry *entries; /* oldest first, until an entry is removed */
    uint32_t count;
    uint64_t left_seen; /* shared_left_count() at the last release of unused payloads */
} team_payloads;

/* Send the payload to the worker, unless the worker has it, before a record names it. Return false
 * if that is not possible now. */
bool payloads_send(team_payloads *payloads, team_worker *worker, gp_broadcast *shared);

/* Record that the worker has no payload, because its process is new. */
void payloads_forget(team_payloads *payloads, const team_worker *worker);

/* Release payloads without users on all workers. The caller commits the links afterwards. */
void payloads_release_unused(team_payloads *payloads, team_worker *workers, uint32_t worker_count);
void payloads_deinit(team_payloads *payloads);

#endif
