/* train_join.c -- those who will join a training prepare while it runs.
 *
 *   lease_change names them -> attach, train_begin with `prepare` -> ok_reply: prepared | error_reply: it cannot
 *
 * Their links are those behind the group's ranks, and end with the group: those who are not in the next one are named
 * again under its generation, and have what they prepared.  Nothing of them is waited for here but by reform.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/train/train_run.h"

static uint32_t rank_of(const gp_run *run, uint32_t place)
{
    return run->facts.workers + place;
}

static void hang_up(gp_run *run, uint32_t place)
{
    uint32_t rank = rank_of(run, place);

    pool_close_worker(run->pool, rank);
    run->joiners[place] = (gp_joiner){ 0 };
}

void gp_run_join_forget(gp_run *run)
{
    for (uint32_t place = 0; rank_of(run, place) < GP_MEMBERS_MAX; place++)
        if (run->joiners[place].index != 0)
            hang_up(run, place);
}

static bool is_slot(const gp_joiner *joiner, const gp_slot *slot)
{
    return joiner->index == slot->index && joiner->incarnation == slot->incarnation;
}

static void take_place(gp_run *run, const gp_slot *slot)
{
    uint32_t free = GP_MEMBERS_MAX;

    for (uint32_t place = 0; rank_of(run, place) < GP_MEMBERS_MAX; place++) {
        if (is_slot(&run->joiners[place], slot))
            return;
        if (run->joiners[place].index == 0 && free == GP_MEMBERS_MAX)
            free = place;
    }
    if (free == GP_MEMBERS_MAX)
        return; /* more than a lease can have */
    run->joiners[free] = (gp_joiner){ .index = slot->index, .incarnation = slot->incarnation };
    run->pool->grant.slots[rank_of(run, free)] = *slot;
}

void gp_run_join_change(gp_run *run, const gp_lease_change *change)
{
    for (uint32_t place = 0; rank_of(run, place) < GP_MEMBERS_MAX; place++) {
        bool named = false;

        for (uint32_t i = 0; i < change->joining_count; i++)
            named = named || is_slot(&run->joiners[place], &change->joining[i]);
        if (run->joiners[place].index != 0 && !named)
            hang_up(run, place);
    }
    for (uint32_t i = 0; i < change->joining_count; i++)
        take_place(run, &change->joining[i]);
}

uint64_t gp_run_join_prepared(const gp_run *run)
{
    uint64_t mask = 0;

    for (uint32_t place = 0; rank_of(run, place) < GP_MEMBERS_MAX; place++)
        if (run->joiners[place].prepared)
            mask |= 1ull << ((run->joiners[place].index - 1) % 64);
    return mask;
}

uint32_t gp_run_join_count(const gp_run *run)
{
    return (uint32_t)__builtin_popcountll(gp_run_join_prepared(run));
}

/* One that cannot be reached is dying: the scheduler will name others. */
static void ask(gp_run *run, uint32_t place, uint32_t workers)
{
    const uint64_t weights_bytes = 0; /* none: the other ranks have the state */
    const gp_payload payloads[] = {
        { .data = run->netspec, .bytes = run->netspec_bytes },
        { .data = run->options_text, .bytes = run->options_bytes },
        { .data = &weights_bytes, .bytes = sizeof(weights_bytes) },
        { .data = run->classes, .bytes = run->classes_bytes },
    };
    gp_train_begin begin = run->begin;
    uint64_t attached;
    gp_error err;
    gp_status status = pool_dial_worker(run->pool, rank_of(run, place), &attached, &err);

    begin.workers = workers;
    begin.restart = run->reform.restarts + 1;
    begin.prepare = 1;
    if (status == GP_OK)
        status = pool_tell_worker(run->pool, rank_of(run, place), &gp_msg_train_begin, &begin, payloads,
                                  run->classes != NULL ? 4 : 2, &run->joiners[place].asked, &err);
    if (status != GP_OK)
        pool_note(run->pool, "worker %" PRIu32 " could not be asked to join: %s", run->joiners[place].index,
                  err.message);
}

void gp_run_join_prepare(gp_run *run, uint32_t workers)
{
    for (uint32_t place = 0; rank_of(run, place) < GP_MEMBERS_MAX; place++)
        if (run->joiners[place].index != 0 && !run->joiners[place].told) {
            run->joiners[place].told = true;
            ask(run, place, workers);
        }
}

static void refuse(gp_run *run, const gp_joiner *joiner, const gp_incoming *in)
{
    gp_error err;

    pool_error_from(in, &err);
    if (err.code == GP_ESTALE ||
        err.code == GP_ECANCELED) /* its grant is over: it is named again with the next */
        return;
    pool_note(run->pool, "worker %" PRIu32 " cannot join: %s; the training goes on with %" PRIu32,
              joiner->index, err.message, run->facts.workers);
    gp_run_reform(run, &(reform_event){ .kind = REFORM_UNFIT });
}

void gp_run_join_take(gp_run *run, uint32_t rank, const gp_incoming *in)
{
    gp_joiner *joiner = &run->joiners[rank - run->facts.workers];

    if (in->type == &gp_msg_error_reply) {
        refuse(run, joiner, in);
    } else if (in->type == &gp_msg_ok_reply && joiner->asked != 0 &&
               in->envelope.correlation == joiner->asked) {
        joiner->prepared = true;
        gp_run_reform(run, &(reform_event){ .kind = REFORM_PREPARED, .prepared = gp_run_join_count(run) });
    }
}
