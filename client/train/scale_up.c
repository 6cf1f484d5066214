#include "client/train/scale_up.h"

#include <inttypes.h>

#include "common/base/text/text.h"

void gp_joiners_set_group(gp_joiners *joiners, uint32_t world)
{
    joiners->first_rank = world;
}

/* Count the links available for joining workers. */
static uint32_t place_count(const gp_joiners *joiners)
{
    return GP_MEMBERS_MAX - joiners->first_rank;
}

static void hang_up(gp_joiners *joiners, gp_pool *pool, uint32_t place)
{
    pool_close_worker(pool, joiners->first_rank + place);
    joiners->joiner[place] = (gp_joiner){ 0 };
}

void gp_joiners_forget(gp_joiners *joiners, gp_pool *pool)
{
    for (uint32_t place = 0; place < place_count(joiners); place++)
        if (joiners->joiner[place].state != GP_JOINER_NONE)
            hang_up(joiners, pool, place);
}

static bool is_slot(const gp_joiner *joiner, const gp_slot *slot)
{
    return joiner->index == slot->index && joiner->incarnation == slot->incarnation;
}

void gp_joiners_change(gp_joiners *joiners, gp_pool *pool, const gp_lease_change *change)
{
    for (uint32_t place = 0; place < place_count(joiners); place++) {
        bool named = false;

        for (uint32_t i = 0; i < change->joining_count; i++)
            named = named || is_slot(&joiners->joiner[place], &change->joining[i]);
        if (joiners->joiner[place].state != GP_JOINER_NONE && !named)
            hang_up(joiners, pool, place);
    }
    for (uint32_t i = 0; i < change->joining_count; i++) {
        const gp_slot *slot = &change->joining[i];
        uint32_t free = GP_MEMBERS_MAX;
        bool known = false;

        for (uint32_t place = place_count(joiners); place-- > 0;) {
            known = known || is_slot(&joiners->joiner[place], slot);
            if (joiners->joiner[place].state == GP_JOINER_NONE)
                free = place;
        }
        if (known || free == GP_MEMBERS_MAX)
            continue; /* or more workers than a lease can have */
        joiners->joiner[free] =
            (gp_joiner){ .state = GP_JOINER_NAMED, .index = slot->index, .incarnation = slot->incarnation };
        pool->grant.slots[joiners->first_rank + free] = *slot;
    }
}

uint64_t gp_joiners_prepared(const gp_joiners *joiners)
{
    uint64_t mask = 0;

    for (uint32_t place = 0; place < place_count(joiners); place++)
        if (joiners->joiner[place].state == GP_JOINER_PREPARED)
            mask |= 1ull << ((joiners->joiner[place].index - 1) % 64);
    return mask;
}

uint32_t gp_joiners_count_prepared(const gp_joiners *joiners)
{
    return (uint32_t)__builtin_popcountll(gp_joiners_prepared(joiners));
}

/* Skip workers that cannot be reached: they are about to exit, and the scheduler will announce
 * others. */
void gp_joiners_invite(gp_joiners *joiners, gp_pool *pool, const gp_begin_message *message,
                       const gp_train_begin *fields)
{
    for (uint32_t place = 0; place < place_count(joiners); place++) {
        gp_joiner *joiner = &joiners->joiner[place];
        const uint32_t rank = joiners->first_rank + place;
        uint64_t attached;
        gp_error err;

        if (joiner->state != GP_JOINER_NAMED)
            continue;
        joiner->state = GP_JOINER_INVITED;
        gp_status status = pool_dial_worker(pool, rank, &attached, &err);

        if (status == GP_OK)
            status = gp_begin_message_send(message, pool, rank, fields, false, &joiner->invitation, &err);
        if (status != GP_OK)
            pool_note(pool, "worker %" PRIu32 " cannot be invited to join: %s", joiner->index, err.message);
    }
}

bool gp_joiners_take(gp_joiners *joiners, gp_pool *pool, uint32_t rank, const gp_incoming *in,
                     membership_event *event)
{
    gp_joiner *joiner = &joiners->joiner[rank - joiners->first_rank];
    gp_error err;

    if (in->type == &gp_msg_error_reply) {
        pool_error_from(in, &err);

        /* the grant ended: the scheduler announces the worker again with the next one */
        if (err.code == GP_ESTALE || err.code == GP_ECANCELED)
            return false;
        pool_note(pool,
                  "worker %" PRIu32 " cannot join: %s; the training continues with %" PRIu32 " worker%s",
                  joiner->index, err.message, joiners->first_rank, gp_plural(joiners->first_rank));
        *event = (membership_event){ .kind = MEMBERSHIP_UNFIT };
        return true;
    }
    if (in->type != &gp_msg_ok_reply || joiner->invitation == 0 ||
        in->envelope.correlation != joiner->invitation)
        return false;
    joiner->state = GP_JOINER_PREPARED;
    *event =
        (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = gp_joiners_count_prepared(joiners) };
    return true;
}
