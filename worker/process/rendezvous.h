/* rendezvous.h -- descriptor exchange between group members: the publish and fetch functions for
 * gp_comm, over control sockets.
 *
 * Each worker's compute thread publishes descriptors in a table. The control thread answers
 * requests from other workers; a request for a descriptor that is not published yet is kept and
 * answered later. Each compute thread connects to the peers' control sockets. A request must carry
 * the current grant's lease, generation and token; all others are refused.
 *
 *   control thread   new, serve, answer, forget, free
 *   compute thread   begin, the ops (as context), end          a lock protects the table
 *
 * gp_rendezvous_end() withdraws all descriptors before the client learns that the training has
 * ended. The next training, which the client starts after that, therefore never fetches
 * descriptors of the previous one. */
#ifndef GP_RENDEZVOUS_H
#define GP_RENDEZVOUS_H

#include "common/base/error.h"
#include "proto/local/control_socket.h"
#include "proto/message/messages.h"
#include "worker/comm/comm.h"
#include "worker/process/mailbox.h"

typedef struct gp_rendezvous gp_rendezvous;

/* Create a rendezvous for one grant, which is copied. A publication wakes the control thread
 * through `mailbox`. */
gp_status gp_rendezvous_new(gp_rendezvous **out, uint64_t lease, uint32_t generation, const gp_grant *grant,
                            gp_mailbox *mailbox, gp_error *err);
void gp_rendezvous_free(gp_rendezvous *rendezvous); /* accepts NULL; compute must be idle */

/* ---- control thread ---- */

/* Answer a request from the control socket, or keep it until the descriptor is published.
 * rendezvous may be NULL (no lease): the request is refused. */
void gp_rendezvous_serve(gp_rendezvous *rendezvous, gp_control_socket *control_socket, uint64_t id,
                         const gp_control_socket_request *request);

/* Answer the pending requests whose descriptors are published. Call it after each wakeup from
 * the mailbox. */
void gp_rendezvous_answer(gp_rendezvous *rendezvous, gp_control_socket *control_socket);

/* Drop the pending requests of a connection that has ended. */
void gp_rendezvous_forget(gp_rendezvous *rendezvous, uint64_t id);

/* ---- compute thread ---- */

/* Fill *out for a group of the first `world` members. out->context is the rendezvous; out->members
 * is valid until gp_rendezvous_end(). GP_EINVAL: `world` exceeds the member count, or excludes this
 * rank. */
gp_status gp_rendezvous_begin(gp_rendezvous *rendezvous, uint32_t world, bool spin, gp_comm_rendezvous *out,
                              gp_error *err);

/* Withdraw all published descriptors and close the connections to peers. */
void gp_rendezvous_end(gp_rendezvous *rendezvous);

#endif
