/* needs.c: find the class of a call's needs, and compare needs with the workers of the team. */
#include "client/team/needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/team/team.h"
#include "common/base/memory/alloc.h"

static team_need need_of(const gp_slot *slot)
{
    team_need has = { .gpu = slot->device_kind == GP_DEVICE_CUDA };

    has.cpu = !has.gpu;
    gp_resources_parse(&has.resources, slot->resources, NULL); /* malformed: none */
    return has;
}

static bool meets(const team_need *has, const team_need *need)
{
    return (!need->cpu || has->cpu) && (!need->gpu || has->gpu) &&
           gp_resources_meet(&has->resources, &need->resources);
}

/* Replace the list of workers that may join. Out of memory: keep the old list. */
static void joining_fill(team_needs *needs, const gp_status_reply *pool)
{
    team_need *joining = gp_calloc(pool->workers_count, sizeof(*joining));

    if (joining == NULL)
        return;
    gp_free(needs->joining);
    needs->joining = joining;
    needs->joining_count = 0;
    for (uint32_t i = 0; i < pool->workers_count; i++) {
        const team_need has = need_of(&pool->workers[i].slot);

        if (pool->workers[i].state != GP_WORKER_EXCLUDED && meets(&has, &needs->lease))
            joining[needs->joining_count++] = has;
    }
}

void team_needs_open(team_needs *needs, const gp_status_reply *pool, const gp_lease_request *lease)
{
    needs->lease.cpu = lease->environment == GP_ENVIRONMENT_CPU;
    needs->lease.gpu = lease->environment == GP_ENVIRONMENT_GPU;
    gp_resources_parse(&needs->lease.resources, lease->needs, NULL);
    if (lease->devices == NULL)
        joining_fill(needs, pool);
}

void team_needs_deinit(team_needs *needs)
{
    gp_free(needs->classes);
    gp_free(needs->joining);
}

/* Return the workers of the grant that meet a need, as a bit set: bit w - 1 for worker w. */
static uint64_t workers_of(const gp_team *team, const team_need *need)
{
    const gp_lease_grant *grant = &team->pool->grant;
    uint64_t workers = 0;

    for (uint32_t w = 1; w <= grant->slots_count; w++) {
        const team_need has = need_of(&grant->slots[w - 1]);

        if (meets(&has, need))
            workers |= (uint64_t)1 << (w - 1);
    }
    return workers;
}

/* Return whether the team can get more workers. */
static bool may_grow(const gp_team *team)
{
    const uint32_t most = team->pool->claim.workers_max;

    return team->membership.elastic && (most == 0 || team->size < most);
}

/* Return whether a worker that meets a need may join the team. */
static bool may_join(const gp_team *team, const team_need *need)
{
    const team_needs *needs = &team->needs;

    for (uint32_t i = 0; i < needs->joining_count; i++)
        if (meets(&needs->joining[i], need))
            return may_grow(team);
    return false;
}

/* Fail because no worker, or not the chosen one, meets a need. */
static gp_status fail_unmet(const gp_team *team, const team_need *need, uint32_t worker, gp_error *err)
{
    const gp_slot *slots = team->pool->grant.slots;
    const char *device = need->gpu ? "a GPU" : need->cpu ? "a CPU device" : "";
    const char *texts[GP_MEMBERS_MAX];
    char resources[GP_RESOURCES_BYTES], there[GP_ERROR_MESSAGE_MAX] = "";
    const bool listed = need->resources.count != 0;

    gp_resources_text(&need->resources, resources);
    for (uint32_t w = 1; w <= team->size; w++)
        texts[w - 1] = slots[w - 1].resources;
    if (listed && worker == 0)
        gp_resources_describe(there, sizeof(there), texts, team->size);
    else if (listed)
        snprintf(there, sizeof(there), "it has %s",
                 texts[worker - 1][0] == '\0' ? "none" : texts[worker - 1]);
    if (worker != 0)
        return gp_fail(err, GP_ENODEV, "worker %" PRIu32 " does not have %s%s%.150s%s%.200s", worker, device,
                       device[0] != '\0' && listed ? " and " : "", resources, listed ? "; " : "", there);
    return gp_fail(err, GP_ENODEV, "none of the %" PRIu32 " workers%s has %s%s%.150s%s%.200s", team->size,
                   !team->membership.elastic ? ""
                   : may_grow(team)          ? ", or of those that may join,"
                                             : ", the maximum of the team,",
                   device, device[0] != '\0' && listed ? " and " : "", resources, listed ? "; " : "", there);
}

static bool same_need(const team_need *a, const team_need *b)
{
    return a->cpu == b->cpu && a->gpu == b->gpu &&
           memcmp(&a->resources, &b->resources, sizeof(a->resources)) == 0;
}

/* Find the number of a need, or an unused number for it. 0: all are in use. */
static uint32_t number_of(const gp_team *team, const team_need *need, bool *known)
{
    const team_needs *needs = &team->needs;
    uint32_t unused = 0;

    for (uint32_t c = 1; c < needs->class_count; c++) {
        *known = same_need(&needs->classes[c].need, need);
        if (*known)
            return c;
        if (unused == 0 && !dispatch_class_used(team->dispatch, c))
            unused = c;
    }
    *known = false;
    return needs->class_count < DISPATCH_CLASSES_MAX ? needs->class_count : unused;
}

gp_status team_needs_search(gp_team *team, gp_lease_environment environment, const char *resources,
                            uint32_t worker, uint32_t *class, gp_error *err)
{
    team_needs *needs = &team->needs;
    team_need need;
    uint64_t workers;
    uint32_t number;
    bool known;
    gp_status status;

    if (worker == 0 && needs->last != 0 && environment == needs->last_environment && resources != NULL &&
        strcmp(resources, needs->last_resources) == 0 && needs->classes[needs->last].workers != 0) {
        *class = needs->last;
        return GP_OK;
    }
    need.cpu = environment == GP_ENVIRONMENT_CPU;
    need.gpu = environment == GP_ENVIRONMENT_GPU;
    status = gp_resources_parse(&need.resources, resources, err);
    if (status != GP_OK)
        return status;
    workers = workers_of(team, &need);
    if (worker != 0)
        return (workers >> (worker - 1) & 1) != 0 ? GP_OK : fail_unmet(team, &need, worker, err);
    if (workers == 0 && !may_join(team, &need))
        return fail_unmet(team, &need, 0, err);
    if (needs->classes == NULL) {
        needs->classes = gp_calloc(DISPATCH_CLASSES_MAX, sizeof(*needs->classes));
        needs->class_count = 1;
    }
    if (needs->classes == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the needs of calls");
    number = number_of(team, &need, &known);
    if (number == 0)
        return gp_fail(err, GP_ELIMIT, "the calls that have not ended have %d different needs, the maximum",
                       DISPATCH_CLASSES_MAX - 1);
    if (!known) {
        status = dispatch_set_class(team->dispatch, number, workers, err);
        if (status != GP_OK)
            return status;
        needs->last = needs->last == number ? 0 : needs->last;
        needs->classes[number] = (team_class){ .need = need, .workers = workers };
        if (number == needs->class_count)
            needs->class_count++;
    }
    if (resources != NULL && strlen(resources) < sizeof(needs->last_resources)) {
        needs->last = number;
        needs->last_environment = environment;
        snprintf(needs->last_resources, sizeof(needs->last_resources), "%s", resources);
    }
    *class = number;
    return GP_OK;
}

uint32_t team_needs_workers(const gp_team *team, uint32_t class)
{
    uint64_t workers;

    if (class == 0)
        return team->size;
    workers = team->needs.classes[class].workers;
    if (team->size < 64)
        workers &= ((uint64_t)1 << team->size) - 1;
    return workers == 0 ? 1 : (uint32_t)__builtin_popcountll(workers);
}

gp_status team_needs_lease(const gp_team *team, uint32_t class, gp_lease_environment *environment,
                           char resources[GP_RESOURCES_BYTES], gp_error *err)
{
    static const team_need nothing;
    const team_need *need = class == 0 ? &nothing : &team->needs.classes[class].need;
    const gp_lease_claim *lease = &team->pool->claim;
    gp_resource_table table;
    gp_status status = gp_resources_parse(&table, lease->needs, err);

    if (status == GP_OK)
        status = gp_resources_merge(&table, &need->resources, err);
    if (status != GP_OK)
        return status;
    gp_resources_text(&table, resources);
    *environment = need->gpu || lease->environment == GP_ENV_GPU   ? GP_ENVIRONMENT_GPU
                   : need->cpu || lease->environment == GP_ENV_CPU ? GP_ENVIRONMENT_CPU
                                                                   : GP_ENVIRONMENT_ANY;
    return GP_OK;
}

void team_needs_update(gp_team *team)
{
    for (uint32_t c = 1; c < team->needs.class_count; c++) {
        team_class *class = &team->needs.classes[c];

        class->workers = workers_of(team, &class->need);
        dispatch_set_class(team->dispatch, c, class->workers, NULL);
    }
}

/* Ask the scheduler for the workers of the pool, unless it was asked a short time ago. */
static void joining_ask(gp_team *team)
{
    enum { PAUSE_NS = 1000000000 };
    team_needs *needs = &team->needs;
    gp_error err;

    if (needs->asked_ns != 0 && team_now(team) - needs->asked_ns < PAUSE_NS)
        return;
    needs->asked_ns = team_now(team);
    if (pool_post(team->pool, &gp_msg_status_get, &(gp_status_get){ 0 }, &needs->asked, &err) != GP_OK)
        team_break(team, &err);
}

void team_needs_reply(team_needs *needs, const gp_incoming *in)
{
    gp_status_reply *reply;
    gp_error ignored;

    if (in->type != &gp_msg_status_reply || in->envelope.correlation != needs->asked)
        return;
    reply = gp_calloc(1, sizeof(*reply));
    if (reply != NULL && gp_incoming_decode(in, reply, &ignored) == GP_OK)
        joining_fill(needs, reply);
    gp_free(reply);
}

void team_needs_check(gp_team *team)
{
    const team_needs *needs = &team->needs;

    for (uint32_t c = 1; c < needs->class_count && team->failure.code == GP_OK; c++) {
        if (!dispatch_class_unmet(team->dispatch, c))
            continue;
        if (may_join(team, &needs->classes[c].need))
            joining_ask(team);
        else
            dispatch_over_class(team->dispatch, c, GP_ENODEV);
    }
}

void team_needs_text(const gp_team *team, uint32_t class, char *text, size_t bytes)
{
    gp_error err;

    fail_unmet(team, &team->needs.classes[class].need, 0, &err);
    snprintf(text, bytes, "%s", err.message);
}
