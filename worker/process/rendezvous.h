/* rendezvous.h -- how the descriptors of one group reach its members: gp_comm's publish and fetch, over doors.
 *
 * Each worker's compute thread publishes into a table; its control thread answers requests for it that come
 * through the door, holding those for what is not published yet.  Each compute thread asks its peers' doors.
 * A request must show lease, generation and token of the present grant; others are turned away.
 *
 *   control thread   new, serve, answer, forget, free
 *   compute thread   begin, the ops (as context), end                      the table is under a lock
 *
 * Publications end with gp_rendezvous_end(), before the end of the training is told to the client: so a next
 * training, which a client begins when all ranks have ended the last, never fetches its descriptors. */
#ifndef GP_RENDEZVOUS_H
#define GP_RENDEZVOUS_H

#include "common/base/error.h"
#include "proto/local/door.h"
#include "proto/message/messages.h"
#include "worker/comm/comm.h"
#include "worker/process/mailbox.h"

typedef struct gp_rendezvous gp_rendezvous;

/* gp_rendezvous_new -- for one grant (copied); publications wake the control thread through mailbox. */
gp_status gp_rendezvous_new(gp_rendezvous **out, uint64_t lease, uint32_t generation, const gp_grant *grant,
                            gp_mailbox *mailbox, gp_error *err);
void gp_rendezvous_free(gp_rendezvous *rendezvous); /* accepts NULL; compute must be idle */

/* ---- control thread ---- */

/* A request came through the door; rendezvous may be NULL (no lease): it is turned away. */
void gp_rendezvous_serve(gp_rendezvous *rendezvous, gp_door *door, uint64_t id,
                         const gp_door_request *request);
/* Answer what can be answered by now; after the mailbox woke us. */
void gp_rendezvous_answer(gp_rendezvous *rendezvous, gp_door *door);
/* A peer's connection is gone. */
void gp_rendezvous_forget(gp_rendezvous *rendezvous, uint64_t id);

/* ---- compute thread ---- */

/* gp_rendezvous_begin -- fill *out for a group of the first `world` members; out->context is the rendezvous, and
 * out->members is valid until end.  GP_EINVAL: more ranks than members, or our own rank is not among them. */
gp_status gp_rendezvous_begin(gp_rendezvous *rendezvous, uint32_t world, bool spin, gp_comm_rendezvous *out,
                              gp_error *err);
/* Withdraw what was published and hang up on the peers. */
void gp_rendezvous_end(gp_rendezvous *rendezvous);

#endif
