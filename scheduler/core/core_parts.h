/* Internal interface between the files of the scheduler core.
 *
 *   core.c   events, clients, ticks, shutdown     slot.c   worker processes: spawn, ready, exit,
 *            respawn
 *   queue.c  queued requests, scheduling order    lease.c  start and end of leases
 *   group.c  formations: offer, acknowledge       adopt.c  recovery after a scheduler crash
 *   resize.c elastic leases                       text.c  message texts */
#ifndef GP_CORE_PARTS_H
#define GP_CORE_PARTS_H

#include "scheduler/core/core.h"

#define GP_CORE_EACH_MEMBER(s, mask)                                                                         \
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)                                                         \
        if (((mask) >> s & 1) != 0)

/* ---- core.c ---- */

/* Append an action to the running step and return it. All fields except kind are zero. */
gp_core_action *gp_core_emit(gp_core *core, gp_core_action_kind kind);

/* Append an action for the present process in a slot. */
gp_core_action *gp_core_emit_to_worker(gp_core *core, gp_core_action_kind kind, uint32_t slot);

/* Append an action for a client session. correlation 0: not a reply. */
gp_core_action *gp_core_emit_to_client(gp_core *core, gp_core_action_kind kind, const gp_core_id *session,
                                       uint64_t correlation);

/* Append an error reply with a formatted message. */
void gp_core_emit_error(gp_core *core, const gp_core_id *session, uint64_t correlation, gp_status status,
                        const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Append a warning for the log. */
void gp_core_emit_log(gp_core *core, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool gp_core_id_equal(const gp_core_id *a, const gp_core_id *b);

/* ---- slot.c ---- */

/* Record the pid of a spawned worker. */
void gp_core_slot_spawned(gp_core *core, const gp_core_event *event);

/* Process worker_ready: the worker is ready, excluded, or adopted. */
void gp_core_slot_ready(gp_core *core, const gp_core_event *event);

/* Process the exit of a worker: repair the lease, and schedule the next spawn. */
void gp_core_slot_died(gp_core *core, const gp_core_event *event);

/* Process a heartbeat. */
void gp_core_slot_beat(gp_core *core, const gp_core_event *event);

/* Record a sign of life: a suspect worker has recovered. silent_ms: how long it was silent. */
void gp_core_slot_heard(gp_core *core, uint32_t index, int64_t silent_ms);

/* Act on the deadlines of a slot: spawn, quit, kill or suspect the worker. */
void gp_core_slot_tick(gp_core *core, uint32_t slot);

/* Spawn the next incarnation. */
void gp_core_slot_spawn(gp_core *core, uint32_t slot);

/* Kill the worker; repeat after config.answer_ms until it has exited. */
void gp_core_slot_kill(gp_core *core, uint32_t slot);
/* Kill a member on request from the client. */
void gp_core_slot_replace(gp_core *core, const gp_core_event *event);
/* Ask the worker to quit; kill it after config.answer_ms. */
void gp_core_slot_quit(gp_core *core, uint32_t slot);
/* Return when the slot needs a tick; INT64_MAX: never. */
int64_t gp_core_slot_due(const gp_core_slot *slot, const gp_core_config *config);

/* Return whether the slot can be granted now. */
bool gp_core_slot_free(const gp_core_slot *slot);

/* Return whether the slot is likely to become ready soon: it is starting, or its device may become
 * free. */
bool gp_core_slot_coming(const gp_core_slot *slot);

/* Return whether the worker is ready, or will be without user action. It may be busy. */
bool gp_core_slot_usable(const gp_core_slot *slot);

/* ---- queue.c ---- */

/* Validate a lease request and queue it by priority. Serve the queue at once. */
void gp_core_queue_ask(gp_core *core, const gp_core_event *event);

/* Return the mask of slots compatible with a request, whether free or not, usable or not.
 *   needs  resources that each slot must have
 *   named  mask of slots requested by name; 0: none */
uint64_t gp_core_queue_fitting(const gp_core *core, gp_core_environment environment,
                               const gp_resource_table *needs, uint64_t named);

/* Remove the session's requests from the queue without a reply. Return how many were removed. */
uint32_t gp_core_queue_leave(gp_core *core, const gp_core_id *session);

/* Grant all requests that can be granted, refuse impossible ones, and notify waiting clients. */
void gp_core_queue_serve(gp_core *core);

/* Refuse all queued requests. */
void gp_core_queue_refuse_all(gp_core *core, gp_status status, const char *why);

/* Return how many workers the head of the queue lacks, if they are all in teams that can give them
 * back: of the slots in *from, which is set to those compatible with the request. 0: the queue is
 * empty, or its head waits for something else. */
uint32_t gp_core_queue_lacks(const gp_core *core, uint64_t *from);

/* Return when to report a wait next; INT64_MAX: never. */
int64_t gp_core_queue_due(const gp_core *core);

/* ---- lease.c ---- */

/* Create a lease for a request and start the first formation. */
void gp_core_lease_begin(gp_core *core, const gp_core_ask *ask, uint64_t members);

/* Revoke all members and forget the lease. Notify the client unless reason is NULL. */
void gp_core_lease_end(gp_core *core, gp_core_lease *lease, gp_status status, const char *reason);

/* Process a release by the holder. An error reply if the session does not hold the lease. */
void gp_core_lease_release(gp_core *core, const gp_core_event *event);

/* Process the acknowledgement of a revoke: the slot is free again. */
void gp_core_lease_revoked(gp_core *core, const gp_core_event *event);

/* Tell one slot's worker to give back a lease. */
void gp_core_lease_revoke(gp_core *core, uint32_t slot, uint64_t lease, uint32_t generation);
/* Find a lease by id. NULL: id is 0, or the lease has ended. */
gp_core_lease *gp_core_lease_of(gp_core *core, uint64_t id);
uint32_t gp_core_lease_count(const gp_core *core);

/* ---- group.c ---- */

/* List members in an action, in rank order: by joining, then by slot. members: mask of slots. */
void gp_core_list_members(const gp_core *core, const gp_core_lease *lease, uint64_t members,
                          gp_core_action *action);

/* Advance the formation to the next phase whose condition is met. */
void gp_core_group_advance(gp_core *core, gp_core_lease *lease);

/* Process the acknowledgement of a grant. */
void gp_core_group_acked(gp_core *core, const gp_core_event *event);

/* Abort the formation after the process in a member slot exited; event holds the cause. The slot
 * spawns a replacement. */
void gp_core_group_lost(gp_core *core, gp_core_lease *lease, const gp_core_event *event, const char *cause);

/* Remove a slot that cannot serve any more: shrink the lease, or end it if too few members
 * remain. */
void gp_core_group_shrink(gp_core *core, gp_core_lease *lease, uint32_t slot);

/* ---- resize.c ---- */

/* Return the members for the next formation, provided they are ready. For an elastic lease, return
 * the live members if there are enough. */
uint64_t gp_core_resize_form(const gp_core *core, const gp_core_lease *lease);

/* Process a resize request for an elastic lease, from any client. */
void gp_core_resize_asked(gp_core *core, const gp_core_event *event);

/* Process lease_form: form the next generation with the workers that the client named. */
void gp_core_resize_go(gp_core *core, const gp_core_event *event);

/* Record that a member outside the formation acknowledged a separate grant. */
void gp_core_resize_acked(gp_core *core, const gp_core_event *event);

/* Assign free slots to elastic leases and send their clients the possible sizes. */
void gp_core_resize_notify(gp_core *core);

/* ---- adopt.c ---- */

/* Mark a slot as awaited: a worker from an earlier scheduler is alive. */
void gp_core_adopt_found(gp_core *core, const gp_core_event *event);

/* Process the report of an awaited worker. */
void gp_core_adopt_reported(gp_core *core, const gp_core_event *event);

/* Revoke claims that belong to a session: a session that requests a lease gives up older ones. */
void gp_core_adopt_asked(gp_core *core, const gp_core_id *session);

/* Return how many workers serve leases that no client has claimed yet. */
uint32_t gp_core_adopt_claims(const gp_core *core);

/* Process the exit of the process that held the slot's claimed lease. */
void gp_core_adopt_unheld(gp_core *core, const gp_core_event *event);

/* Process a client's claim: restore the lease, or refuse the claim. */
void gp_core_adopt_claim(gp_core *core, const gp_core_event *event);

/* End the report period once the deadline has passed or all reports have arrived. */
void gp_core_adopt_tick(gp_core *core);

/* ---- text.c ---- */

/* Write a message such as "worker 2 (pid 4711, cpu cores 1) was killed by signal 9 (Killed) (it
 * last reported step 120); its log is ..." to text. */
void gp_core_text_exit(char text[GP_ERROR_MESSAGE_MAX], const gp_core_slot *slot, uint32_t index,
                       const gp_core_event *event);

/* Write "lease 3 (train lenet, pid 812) has held 2 workers for 3 m 20 s" to text; several leases
 * are joined with commas. */
void gp_core_text_holders(const gp_core *core, char text[GP_ERROR_MESSAGE_MAX]);

/* Write the resources of all workers, as gp_resources_describe(). Return text. */
char *gp_core_text_resources(const gp_core *core, char *text, size_t bytes);

/* Write "1 worker", "2 workers" and so on to text; return text. */
char *gp_core_text_workers(char *text, size_t bytes, uint32_t count);

#endif
