/* scale_up.h: workers that prepare to join a training while it runs.
 *
 *   lease_change names them -> attach, train_begin with `prepare`
 *   -> ok_reply: prepared | error_reply: cannot join
 *
 * Their links follow those of the group's ranks, and close with the group. A worker that is not
 * in the next group is named again under its generation, and keeps the prepared data. Only
 * membership.c waits for joining workers. */
#ifndef GP_SCALE_UP_H
#define GP_SCALE_UP_H

#include "client/train/membership.h"
#include "client/train/train_begin.h"

typedef enum gp_joiner_state {
    GP_JOINER_NONE,
    GP_JOINER_NAMED, /* announced by the scheduler */

    /* train_begin was sent, or failed to be sent; then another change follows */
    GP_JOINER_INVITED,
    GP_JOINER_PREPARED, /* can join the next group */
} gp_joiner_state;

typedef struct gp_joiner {
    gp_joiner_state state;
    uint32_t index, incarnation; /* identity of the worker */
    uint64_t invitation;         /* correlation of the train_begin message; 0: not sent */
} gp_joiner;

typedef struct gp_joiners {
    /* link rank of joiner[0]; equals the rank count of the group */
    uint32_t first_rank;
    gp_joiner joiner[GP_MEMBERS_MAX];
} gp_joiners;

/* Place the joiner links after the links of a new group.
 *   world  rank count */
void gp_joiners_set_group(gp_joiners *joiners, uint32_t world);

/* Apply a lease_change: add the named workers, and close the links to all other joining workers. */
void gp_joiners_change(gp_joiners *joiners, gp_pool *pool, const gp_lease_change *change);

/* Close the links to all joining workers: the group ended, or the scheduler that named them
 * exited. */
void gp_joiners_forget(gp_joiners *joiners, gp_pool *pool);

/* Ask all named workers to prepare as ranks in a group.
 *   fields  train_begin of that group, with `prepare` */
void gp_joiners_invite(gp_joiners *joiners, gp_pool *pool, const gp_begin_message *message,
                       const gp_train_begin *fields);

/* Handle a message on the link of `rank`. Return true if *event was set; pass it to
 * membership_step(). */
bool gp_joiners_take(gp_joiners *joiners, gp_pool *pool, uint32_t rank, const gp_incoming *in,
                     membership_event *event);

/* Return the prepared workers as a mask: bit index - 1 for each. */
uint64_t gp_joiners_prepared(const gp_joiners *joiners);
uint32_t gp_joiners_count_prepared(const gp_joiners *joiners);

#endif
