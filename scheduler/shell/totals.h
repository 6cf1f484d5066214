/* Counters of the scheduler process (pool_counters.def), and those that it keeps for each worker
 * slot. */
#ifndef GP_TOTALS_H
#define GP_TOTALS_H

#include "proto/message/messages.h"
#include "scheduler/core/core.h"

/* Counters of one slot. */
typedef struct slot_totals {
    gp_beat beat;      /* latest heartbeat of the process */
    uint64_t failures; /* processes that failed */
} slot_totals;

typedef struct totals {
#define GP_COUNTER(name) uint64_t name;
#include "proto/message/pool_counters.def"
    slot_totals slots[GP_CORE_SLOTS_MAX];
} totals;

/* Count an event before the core handles it. */
void totals_event(totals *totals, const gp_core_event *event);

/* Count an action of the core. */
void totals_action(totals *totals, const gp_core *core, const gp_core_action *action);

/* Store the counters of a heartbeat. A zeroed one: the slot has a new process. */
void totals_beat(totals *totals, uint32_t slot, const gp_beat *beat);

/* Fill in the counters of a status reply whose worker rows are filled in. */
void totals_get(const totals *totals, gp_status_reply *out);

#endif
