#include "scheduler/shell/totals.h"

void totals_event(totals *t, const gp_core_event *event)
{
    const bool orderly = event->death == GP_CORE_DIED_EXIT && event->number == 0;

    t->adoptions_total += event->kind == GP_CORE_EVENT_WORKER_FOUND;
    if (event->kind != GP_CORE_EVENT_WORKER_DIED || event->slot >= GP_CORE_SLOTS_MAX)
        return;
    t->slots[event->slot].beat = (gp_beat){ 0 };
    t->failures_total += !orderly;
    t->slots[event->slot].failures += !orderly;
}

/* Count a grant, and the time that the client waited for it. */
static void add_grant(totals *t, const gp_core *core, uint64_t id)
{
    uint64_t ms = 0;

    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++)
        if (core->leases[i].id == id && core->leases[i].asked_ms != 0)
            ms = (uint64_t)(core->now_ms - core->leases[i].asked_ms);
    t->grants_total++;
    t->wait_ms_total += ms;
    t->waits_10ms_total += ms <= 10;
    t->waits_100ms_total += ms <= 100;
    t->waits_1s_total += ms <= 1000;
    t->waits_10s_total += ms <= 10000;
    t->waits_1min_total += ms <= 60000;
    t->waits_10min_total += ms <= 600000;
    t->waits_1h_total += ms <= 3600000;
}

void totals_action(totals *t, const gp_core *core, const gp_core_action *action)
{
    switch (action->kind) {
    case GP_CORE_SPAWN:
        t->spawns_total++;
        break;
    case GP_CORE_SUSPECT:
        t->suspects_total += action->silent_ms != 0;
        break;
    case GP_CORE_LEASE_GRANT:
        if (action->correlation != 0) /* the reply to the request, not a later generation */
            add_grant(t, core, action->lease);
        break;
    default:
        break;
    }
}

void totals_beat(totals *t, uint32_t slot, const gp_beat *beat)
{
    t->slots[slot].beat = *beat;
    /* an adopted worker knows the failures that the earlier scheduler has counted */
    if (t->slots[slot].failures < beat->failures_total)
        t->slots[slot].failures = beat->failures_total;
}

void totals_get(const totals *t, gp_status_reply *out)
{
#define GP_COUNTER(name) out->name = t->name;
#include "proto/message/pool_counters.def"
    for (uint32_t i = 0; i < out->workers_count; i++) {
        const slot_totals *slot = &t->slots[i];
        gp_worker_row *row = &out->workers[i];

#define GP_COUNTER(name) row->name = slot->beat.name;
#include "proto/message/worker_counters.def"
        row->failures_total = slot->failures;
    }
}
