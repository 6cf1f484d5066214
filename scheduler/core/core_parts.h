/* core_parts.h -- inside the core: what its files need of each other.
 *
 *   core.c   events in, clients, ticks, shutdown      slot.c   worker processes: spawn, ready, death, respawn
 *   queue.c  asks, whom to serve next                 lease.c  the making and the end of leases
 *   group.c  formations: offer, acknowledge, repair   adopt.c  what an earlier scheduler left
 *   resize.c leases that grow and shrink              words.c  sentences */
#ifndef GP_CORE_PARTS_H
#define GP_CORE_PARTS_H

#include "scheduler/core/core.h"

#define GP_CORE_EACH_MEMBER(s, mask)                                                                         \
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)                                                         \
        if (((mask) >> s & 1) != 0)

/* ---- core.c ---- */

/* The next action of the running step, zeroed but for its kind. */
gp_core_action *gp_core_emit(gp_core *core, gp_core_action_kind kind);
gp_core_action *gp_core_emit_to_worker(gp_core *core, gp_core_action_kind kind, uint32_t slot);
gp_core_action *gp_core_emit_to_client(gp_core *core, gp_core_action_kind kind, const gp_core_id *session,
                                       uint64_t correlation);
void gp_core_emit_error(gp_core *core, const gp_core_id *session, uint64_t correlation, gp_status status,
                        const char *format, ...) __attribute__((format(printf, 5, 6)));
void gp_core_emit_log(gp_core *core, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool gp_core_id_equal(const gp_core_id *a, const gp_core_id *b);

/* ---- slot.c ---- */

void gp_core_slot_spawned(gp_core *core, const gp_core_event *event);
void gp_core_slot_ready(gp_core *core, const gp_core_event *event);
void gp_core_slot_died(gp_core *core, const gp_core_event *event);
void gp_core_slot_beat(gp_core *core, const gp_core_event *event);
void gp_core_slot_tick(gp_core *core, uint32_t slot);
void gp_core_slot_spawn(gp_core *core, uint32_t slot);
void gp_core_slot_kill(gp_core *core, uint32_t slot);
void gp_core_slot_replace(gp_core *core, const gp_core_event *event); /* its client wants it killed */
void gp_core_slot_quit(gp_core *core, uint32_t slot); /* politely, then killed after config.answer_ms */
int64_t gp_core_slot_due(const gp_core_slot *slot, const gp_core_config *config); /* INT64_MAX = never */

/* May be granted now. */
bool gp_core_slot_free(const gp_core_slot *slot);
/* Not there yet, but will be: starting, or its device may soon come free. */
bool gp_core_slot_coming(const gp_core_slot *slot);
/* Serves, or will without anybody's help; busy or not. */
bool gp_core_slot_usable(const gp_core_slot *slot);

/* ---- queue.c ---- */

void gp_core_queue_ask(gp_core *core, const gp_core_event *event);
/* The slots that such an ask may be given, free or not, usable or not; named: what its devices came to. */
uint64_t gp_core_queue_fitting(const gp_core *core, gp_core_environment environment, uint64_t named);
/* Drop the session's asks without a word; returns how many. */
uint32_t gp_core_queue_leave(gp_core *core, const gp_core_id *session);
/* Grant what can be granted, refuse what can never be, tell those who wait on. */
void gp_core_queue_serve(gp_core *core);
void gp_core_queue_refuse_all(gp_core *core, gp_status status, const char *why);
int64_t gp_core_queue_due(const gp_core *core);

/* ---- lease.c ---- */

void gp_core_lease_begin(gp_core *core, const gp_core_ask *ask, uint64_t members);
/* Revoke all members and forget the lease; tells the client unless reason is NULL. */
void gp_core_lease_end(gp_core *core, gp_core_lease *lease, gp_status status, const char *reason);
void gp_core_lease_release(gp_core *core, const gp_core_event *event);
void gp_core_lease_revoked(gp_core *core, const gp_core_event *event);
/* Order one slot to give back a lease. */
void gp_core_lease_revoke(gp_core *core, uint32_t slot, uint64_t lease, uint32_t generation);
gp_core_lease *gp_core_lease_of(gp_core *core, uint64_t id); /* NULL for 0 and for ids that have ended */
uint32_t gp_core_lease_count(const gp_core *core);

/* ---- group.c ---- */

/* Go on with the formation as far as it can go now. */
void gp_core_group_advance(gp_core *core, gp_core_lease *lease);
void gp_core_group_acked(gp_core *core, const gp_core_event *event);
/* The process in a member's slot is gone; event has the cause.  A replacement is on its way. */
void gp_core_group_lost(gp_core *core, gp_core_lease *lease, const gp_core_event *event, const char *cause);
/* The slot can serve no more: shrink the lease, or end it. */
void gp_core_group_shrink(gp_core *core, gp_core_lease *lease, uint32_t slot);

/* ---- resize.c ---- */

/* The members that the next formation is of, if they are ready: of an elastic lease those who live, where they are enough. */
uint64_t gp_core_resize_form(const gp_core *core, const gp_core_lease *lease);
void gp_core_resize_asked(gp_core *core, const gp_core_event *event);
void gp_core_resize_go(gp_core *core, const gp_core_event *event);
/* A member that is not in the formation has acknowledged its own grant. */
void gp_core_resize_acked(gp_core *core, const gp_core_event *event);
/* Take what is free for elastic leases, and tell their clients what those can be. */
void gp_core_resize_tell(gp_core *core);

/* ---- adopt.c ---- */

void gp_core_adopt_found(gp_core *core, const gp_core_event *event);
/* The slot's worker, which was awaited, has reported. */
void gp_core_adopt_reported(gp_core *core, const gp_core_event *event);
/* That session asks for a lease. */
void gp_core_adopt_asked(gp_core *core, const gp_core_id *session);
/* How many workers serve leases that no client has claimed yet. */
uint32_t gp_core_adopt_claims(const gp_core *core);
/* The process that held what the slot's worker claims is dead. */
void gp_core_adopt_unheld(gp_core *core, const gp_core_event *event);
void gp_core_adopt_claim(gp_core *core, const gp_core_event *event);
/* Ends the time of reports when it is over, or nobody is missing. */
void gp_core_adopt_tick(gp_core *core);

/* ---- words.c ---- */

/* "worker 2 (pid 4711, cpu cores 1) was killed by signal 9 (Killed) (it last reported step 120); its log is ..." */
void gp_core_words_death(char text[GP_ERROR_MESSAGE_MAX], const gp_core_slot *slot, uint32_t index,
                         const gp_core_event *event);
/* "lease 3 (train lenet, pid 812) has held 2 workers for 3 m 20 s"; several are joined. */
void gp_core_words_holders(const gp_core *core, char text[GP_ERROR_MESSAGE_MAX]);
/* "1 worker", "2 workers" */
char *gp_core_words_workers(char *text, size_t bytes, uint32_t count);

#endif
