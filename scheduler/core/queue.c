/* Queue lease requests and decide which one to serve next.
 *
 * The core considers only the head of the queue. Requests are not overtaken except by priority, and
 * no request holds part of its workers while it waits. So there is no deadlock, and small requests
 * do not starve a large one. A request that the pool can never serve is refused with an error
 * message as soon as this is known. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "scheduler/core/core_parts.h"

enum {
    REPORT_EVERY_MS = 1000,
    /* Delay before reporting a wait that no lease causes. Such a wait is usually short, and the
     * reason is internal. */
    QUIET_MS = 2000,
};

/* Return whether a usable worker with this device kind and these resources exists. */
static bool any_usable(const gp_core *core, gp_core_device_kind kind, const gp_resource_table *needs)
{
    for (uint32_t s = 0; s < core->slot_count; s++) {
        if (core->slots[s].config.kind == kind && gp_core_slot_usable(&core->slots[s]) &&
            gp_resources_meet(&core->slots[s].config.resources, needs))
            return true;
    }
    return false;
}

uint64_t gp_core_queue_fitting(const gp_core *core, gp_core_environment environment,
                               const gp_resource_table *needs, uint64_t named)
{
    uint64_t mask = 0;
    bool cpu = any_usable(core, GP_CORE_CPU, needs), gpu = any_usable(core, GP_CORE_GPU, needs);

    if (named != 0)
        return named;
    for (uint32_t s = 0; s < core->slot_count; s++) {
        bool is_gpu = core->slots[s].config.kind == GP_CORE_GPU;

        /* A GPU worker can also compute on CPU cores, but a CPU worker is preferred for CPU
         * requests. */
        if ((environment == GP_CORE_ONLY_GPU && !is_gpu) || (environment == GP_CORE_ANY && gpu && !is_gpu) ||
            (environment == GP_CORE_ONLY_CPU && cpu && is_gpu) ||
            !gp_resources_meet(&core->slots[s].config.resources, needs))
            continue;
        mask |= 1ull << s;
    }
    return mask;
}

/* Set ask->named from the device list of the request: worker indices, "cuda:N" or UUIDs.
 *   GP_ENODEV: unknown device
 *   GP_EINVAL: the list is empty */
static gp_status resolve_devices(const gp_core *core, gp_core_ask *ask, gp_error *err)
{
    char list[GP_CORE_DEVICES_MAX], *rest = list, *name;

    snprintf(list, sizeof(list), "%s", ask->wish.devices);
    while ((name = strsep(&rest, ", ")) != NULL) {
        char *end, cuda[24];
        unsigned long number = strtoul(name, &end, 10); /* worker index from 1 */
        uint32_t s = 0;

        if (*name == '\0')
            continue;
        for (; s < core->slot_count; s++) {
            const gp_core_slot_config *config = &core->slots[s].config;

            snprintf(cuda, sizeof(cuda), "cuda:%u", config->device_index);
            if ((*end == '\0' && number == s + 1) ||
                (config->kind == GP_CORE_GPU &&
                 (strcmp(name, cuda) == 0 || strcasecmp(name, config->uuid) == 0)))
                break;
        }
        if (s == core->slot_count)
            return gp_fail(err, GP_ENODEV,
                           "no worker of this pool has device %s; list devices with `gradpool devices`",
                           name);
        ask->named |= 1ull << s;
    }
    if (ask->wish.devices[0] != '\0' && ask->named == 0)
        return gp_fail(err, GP_EINVAL, "the device list \"%s\" is empty", ask->wish.devices);
    return GP_OK;
}

/* Return the minimum number of workers that the request accepts. */
static uint32_t least(const gp_core_ask *ask)
{
    uint32_t most = ask->wish.min > ask->wish.floor ? ask->wish.min : ask->wish.floor;

    return most == 0 ? 1 : most;
}

/* Return the mask of slots compatible with a request, see gp_core_queue_fitting(). */
static uint64_t fitting(const gp_core *core, const gp_core_ask *ask)
{
    return gp_core_queue_fitting(core, ask->wish.environment, &ask->wish.needs, ask->named);
}

/* Check that enough workers, and all named ones, have the resources that the request needs.
 * GP_ENODEV: they have not; the message lists the resources of all workers. */
static gp_status check_resources(const gp_core *core, const gp_core_ask *ask, gp_error *err)
{
    static const gp_resource_table nothing;
    const uint64_t anywhere = gp_core_queue_fitting(core, ask->wish.environment, &nothing, ask->named);
    uint32_t meet = 0, named = (uint32_t)__builtin_popcountll(ask->named);
    char asked[32], needs[GP_RESOURCES_BYTES], there[GP_ERROR_MESSAGE_MAX];

    GP_CORE_EACH_MEMBER(s, anywhere)
    meet += gp_resources_meet(&core->slots[s].config.resources, &ask->wish.needs);
    if (meet >= (named != 0 ? named : least(ask)) || (uint32_t)__builtin_popcountll(anywhere) < least(ask))
        return GP_OK; /* the resources are not the cause */
    return gp_fail(err, GP_ENODEV,
                   "%s with %.150s requested, but the pool has %u; %.200s; set resources with `gradpool up "
                   "--resource`",
                   gp_core_text_workers(asked, sizeof(asked), named != 0 ? named : least(ask)),
                   gp_resources_text(&ask->wish.needs, needs), meet,
                   gp_core_text_resources(core, there, sizeof(there)));
}

/* Check whether the pool can ever serve this request.
 *   GP_ENODEV: too few usable workers, or a named worker is unusable */
static gp_status check_possible(const gp_core *core, const gp_core_ask *ask, gp_error *err)
{
    uint64_t mask = fitting(core, ask);
    uint32_t usable = 0, need = least(ask);
    const char *reason = "";
    char asked[32];

    if (ask->wish.needs.count != 0 && check_resources(core, ask, err) != GP_OK)
        return err->code;
    GP_CORE_EACH_MEMBER(s, mask)
    {
        if (gp_core_slot_usable(&core->slots[s]))
            usable++;
        else if (ask->named != 0)
            return gp_fail(err, GP_ENODEV, "worker %u is unusable: %s", s + 1, core->slots[s].reason);
        else
            reason = core->slots[s].reason;
    }
    if (ask->named != 0 || usable >= need)
        return GP_OK;
    gp_core_text_workers(asked, sizeof(asked), need);
    if (ask->wish.environment == GP_CORE_ONLY_GPU && usable == 0)
        return gp_fail(err, GP_ENODEV,
                       "no worker of this pool has a GPU of its own%s%s; use --execution-environment "
                       "auto to train on the CPU",
                       reason[0] != '\0' ? ": " : "", reason);
    if (usable < (uint32_t)__builtin_popcountll(mask))
        return gp_fail(err, GP_ENODEV, "%s requested, but the pool has %u usable ones; one is unusable: %s",
                       asked, usable, reason);
    return gp_fail(err, GP_ENODEV,
                   "%s requested, but the pool has %u; enlarge it with `gradpool up --workers %u`", asked,
                   usable, need);
}

/* Return the members that a request would get now. 0: it has to wait. */
static uint64_t choose(const gp_core *core, const gp_core_ask *ask)
{
    uint64_t mask = fitting(core, ask), chosen = 0;
    uint32_t count = 0, max = ask->wish.max == 0 ? GP_CORE_SLOTS_MAX : ask->wish.max;
    bool whole_pool = ask->wish.min == 0 && ask->wish.max == 0 && ask->named == 0;

    GP_CORE_EACH_MEMBER(s, mask)
    {
        if (gp_core_slot_free(&core->slots[s]) && count < max) {
            chosen |= 1ull << s;
            count++;
        } else if (ask->named != 0 || (whole_pool && gp_core_slot_usable(&core->slots[s]))) {
            return 0;
        }
    }
    return count >= least(ask) ? chosen : 0;
}

static void remove_ask(gp_core *core, uint32_t position)
{
    core->ask_count--;
    memmove(&core->asks[position], &core->asks[position + 1],
            (core->ask_count - position) * sizeof(gp_core_ask));
}

/* Return the oldest lease. 0: none. */
static uint64_t first_holder(const gp_core *core)
{
    uint64_t first = 0;

    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        if (core->leases[i].id != 0 && (first == 0 || core->leases[i].id < first))
            first = core->leases[i].id;
    }
    return first;
}

/* Return when the client of request i must learn why it waits; INT64_MAX: it already knows. A wait
 * that no lease causes (workers start, or are checked after a scheduler restart) is reported only
 * after QUIET_MS. */
static int64_t wait_due(const gp_core *core, uint32_t i, uint64_t holder)
{
    const gp_core_ask *ask = &core->asks[i];
    bool held = holder != 0 || (core->adopting_ms == 0 && gp_core_adopt_claims(core) != 0);

    if (ask->reported_position == i + 1 && ask->reported_holder == holder)
        return INT64_MAX;
    if (ask->reported_position != 0)
        return ask->reported_ms + REPORT_EVERY_MS;
    return held ? ask->asked_ms : ask->asked_ms + QUIET_MS;
}

/* Send lease_wait to each client whose queue position or blocking lease changed. */
static void notify_waiting(gp_core *core)
{
    char holders[GP_ERROR_MESSAGE_MAX];
    uint64_t holder = first_holder(core);
    const gp_core_lease *lease = gp_core_lease_find(core, holder);

    if (core->ask_count != 0)
        gp_core_text_holders(core, holders);
    for (uint32_t i = 0; i < core->ask_count; i++) {
        gp_core_ask *ask = &core->asks[i];
        gp_core_action *action;

        if (core->now_ms < wait_due(core, i, holder))
            continue;
        ask->reported_position = i + 1;
        ask->reported_holder = holder;
        ask->reported_ms = core->now_ms;
        action = gp_core_emit_to_client(core, GP_CORE_LEASE_WAIT, &ask->session, ask->correlation);
        action->position = i + 1;
        action->lease = holder;
        action->held_ms = lease != NULL ? core->now_ms - lease->since_ms : 0;
        snprintf(action->text, sizeof(action->text), "position %u in the queue; %.400s", i + 1, holders);
    }
}

int64_t gp_core_queue_due(const gp_core *core)
{
    int64_t due = INT64_MAX;
    uint64_t holder = first_holder(core);

    for (uint32_t i = 0; i < core->ask_count; i++) {
        int64_t at = wait_due(core, i, holder);

        due = at < due ? at : due;
    }
    return due;
}

uint32_t gp_core_queue_lacks(const gp_core *core, uint64_t *from)
{
    const gp_core_ask *ask = &core->asks[0];
    uint32_t need = 0, there = 0;
    bool whole_pool = ask->wish.min == 0 && ask->wish.max == 0 && ask->named == 0;

    if (core->ask_count == 0)
        return 0;
    *from = fitting(core, ask);
    GP_CORE_EACH_MEMBER(s, *from)
    {
        const gp_core_slot *slot = &core->slots[s];

        need += gp_core_slot_usable(slot);
        there += gp_core_slot_usable(slot) && slot->lease == 0; /* free, or soon */
    }
    if (!whole_pool && ask->named == 0)
        need = least(ask);
    return need > there ? need - there : 0;
}

void gp_core_queue_serve(gp_core *core)
{
    uint32_t position = 0;

    /* While reports are awaited, the core does not know which leases exist. */
    while (position < core->ask_count && core->accepting && core->stopping != GP_CORE_STOPPING &&
           core->adopting_ms == 0) {
        gp_core_ask ask = core->asks[position];
        uint64_t members;
        gp_error err;

        if (check_possible(core, &ask, &err) != GP_OK) {
            remove_ask(core, position);
            gp_core_emit_error(core, &ask.session, ask.correlation, err.code, "%s", err.message);
            continue;
        }
        members = choose(core, &ask);
        if (members != 0) {
            remove_ask(core, position);
            gp_core_lease_begin(core, &ask, members);
        } else if (ask.wish.no_wait && /* do not wait for leases, but wait for starting workers */
                   (gp_core_lease_count(core) != 0 || gp_core_adopt_claims(core) != 0)) {
            char holders[GP_ERROR_MESSAGE_MAX];

            remove_ask(core, position);
            gp_core_text_holders(core, holders);
            gp_core_emit_error(core, &ask.session, ask.correlation, GP_EBUSY, "no workers are free: %.400s",
                               holders);
        } else {
            break;
        }
    }
    notify_waiting(core);
}

void gp_core_queue_ask(gp_core *core, const gp_core_event *event)
{
    gp_core_ask ask = { .wish = *event->wish,
                        .session = event->session,
                        .correlation = event->correlation,
                        .pid = event->pid,
                        .asked_ms = core->now_ms };
    uint32_t position = core->ask_count;
    gp_error err = { .code = GP_OK };

    if (core->stopping == GP_CORE_STOPPING || (core->stopping == GP_CORE_STOP_WHEN_IDLE && !ask.wish.of_job))
        gp_fail(&err, GP_ESTATE, "the pool is shutting down; start a new one with `gradpool up`");
    else if (!core->accepting)
        gp_fail(
            &err, GP_ESTATE,
            "the scheduler lost its lock file and grants no leases; run `gradpool down`, then `gradpool up`");
    else if (core->ask_count == core->config.waits_max)
        gp_fail(&err, GP_EBUSY, "%u clients are in the queue, which is the limit; try again later",
                core->ask_count);
    else if (ask.wish.max != 0 && ask.wish.min > ask.wish.max)
        gp_fail(&err, GP_EINVAL,
                "invalid request for %u to %u workers: the minimum is larger than the maximum", ask.wish.min,
                ask.wish.max);
    else if (ask.wish.max != 0 && ask.wish.floor > ask.wish.max)
        gp_fail(&err, GP_EINVAL, "min-workers is %u, more than the %u workers requested", ask.wish.floor,
                ask.wish.max);
    else if (resolve_devices(core, &ask, &err) == GP_OK && ask.named != 0 &&
             (uint32_t)__builtin_popcountll(ask.named) < least(&ask))
        gp_fail(&err, GP_EINVAL, "the device list \"%.100s\" names %u workers, but at least %u are needed",
                ask.wish.devices, (uint32_t)__builtin_popcountll(ask.named), least(&ask));
    if (err.code == GP_OK)
        (void)check_possible(core, &ask, &err);
    if (err.code != GP_OK) {
        gp_core_emit_error(core, &ask.session, ask.correlation, err.code, "%s", err.message);
        return;
    }
    while (position > 0 && core->asks[position - 1].wish.priority < ask.wish.priority)
        position--;
    memmove(&core->asks[position + 1], &core->asks[position], (core->ask_count - position) * sizeof(ask));
    core->asks[position] = ask;
    core->ask_count++;
    gp_core_adopt_asked(core, &ask.session);
    gp_core_queue_serve(core);
    /* gp_core_queue_serve() considers only the head. Refuse a no_wait request behind it here. */
    for (uint32_t i = 1; ask.wish.no_wait && i < core->ask_count; i++) {
        if (core->asks[i].correlation == ask.correlation &&
            gp_core_id_equal(&core->asks[i].session, &ask.session)) {
            remove_ask(core, i);
            gp_core_emit_error(core, &ask.session, ask.correlation, GP_EBUSY,
                               "no workers are free: %u clients are in the queue before this one", i);
            break;
        }
    }
}

uint32_t gp_core_queue_leave(gp_core *core, const gp_core_id *session)
{
    uint32_t left = 0;

    for (uint32_t i = core->ask_count; i-- > 0;) {
        if (gp_core_id_equal(&core->asks[i].session, session)) {
            remove_ask(core, i);
            left++;
        }
    }
    return left;
}

void gp_core_queue_refuse_all(gp_core *core, gp_status status, const char *why)
{
    for (uint32_t i = 0; i < core->ask_count; i++)
        gp_core_emit_error(core, &core->asks[i].session, core->asks[i].correlation, status, "%s", why);
    core->ask_count = 0;
}
