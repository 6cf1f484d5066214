/* train_join.h -- workers that will join a training prepare while it runs.
 *
 *   lease_change names them -> attach, train_begin with `prepare` -> ok_reply: prepared | error_reply: it cannot
 *
 * Their links are those behind the ranks of the group, and end with the group.  Workers that are not in the next group
 * are named again under its generation, and keep what they prepared.  Only reform.c waits for them. */
#ifndef GP_TRAIN_JOIN_H
#define GP_TRAIN_JOIN_H

#include "client/train/reform.h"
#include "client/train/train_begin.h"

typedef enum gp_joiner_state {
    GP_JOINER_NONE,
    GP_JOINER_NAMED,    /* by the scheduler */
    GP_JOINER_INVITED,  /* train_begin was sent, or could not be: another change follows then */
    GP_JOINER_PREPARED, /* it can join the next group */
} gp_joiner_state;

typedef struct gp_joiner {
    gp_joiner_state state;
    uint32_t index, incarnation; /* of the worker */
    uint64_t invitation;         /* correlation of its train_begin; 0: not sent */
} gp_joiner;

typedef struct gp_joiners {
    uint32_t first_rank; /* rank of the link of joiner[0]: the number of ranks of the group */
    gp_joiner joiner[GP_MEMBERS_MAX];
} gp_joiners;

/* Place the links to joiners behind those to the ranks of a new group.
 *   world  number of ranks */
void gp_joiners_set_group(gp_joiners *joiners, uint32_t world);
/* Take over the names of a lease_change, and close the links to workers that it does not name. */
void gp_joiners_change(gp_joiners *joiners, gp_pool *pool, const gp_lease_change *change);
/* Close the links to all joiners: the group is left, or the scheduler that named them has exited. */
void gp_joiners_forget(gp_joiners *joiners, gp_pool *pool);
/* Ask all named workers to prepare as ranks of a group.
 *   fields  train_begin of that group, with `prepare` */
void gp_joiners_invite(gp_joiners *joiners, gp_pool *pool, const gp_begin_message *message,
                       const gp_train_begin *fields);
/* Handle a message on the link of `rank`.  Returns whether *event has to be handled by reform_step(). */
bool gp_joiners_take(gp_joiners *joiners, gp_pool *pool, uint32_t rank, const gp_incoming *in,
                     reform_event *event);
/* Return the workers that have prepared: bit index - 1 of each. */
uint64_t gp_joiners_prepared(const gp_joiners *joiners);
uint32_t gp_joiners_count_prepared(const gp_joiners *joiners);

#endif
