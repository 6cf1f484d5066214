/* payloads.h -- which worker has which shared payload: each is sent once, kept while it is in use, and released.
 *
 *   absent --descriptor through the door--> mapped --GP_CALL_RELEASE--> releasing --ring empty--> absent
 *
 * A release follows all calls that name the payload in the ring, so it may be sent at any time. Only an empty ring
 * proves that the worker has executed it. A worker accepts GP_LINK_BLOBS_MAX payloads, those being released included:
 * beyond that, the oldest are released, and sent again when a call needs them. */
#ifndef GP_TEAM_PAYLOADS_H
#define GP_TEAM_PAYLOADS_H

#include "client/team/shared.h"
#include "client/team/worker.h"

typedef struct payload_entry {
    gp_broadcast *shared;
    uint64_t workers;   /* bit w - 1: worker w has it */
    uint64_t releasing; /* bit w - 1: worker w may still have it; its release is in the ring */
} payload_entry;

/* The payloads of one team; zero-initialise. */
typedef struct team_payloads {
    payload_entry *entries; /* oldest first, until one is removed */
    uint32_t count;
    uint64_t left_seen; /* shared_left_count() when unused payloads were released last */
} team_payloads;

/* Make sure that the worker has the payload before a record names it.  False: impossible now. */
bool payloads_send(team_payloads *payloads, team_worker *worker, gp_broadcast *shared);
/* Record that the worker has no payload: its process is new. */
void payloads_forget(team_payloads *payloads, const team_worker *worker);
/* Return whether a payload has lost its last user since payloads_release_unused(). */
bool payloads_unused(const team_payloads *payloads);
/* Release what no call uses and no user holds any more on all workers; their links are to be committed. */
void payloads_release_unused(team_payloads *payloads, team_worker *workers, uint32_t worker_count);
void payloads_deinit(team_payloads *payloads);

#endif
