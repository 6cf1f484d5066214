#include "client/team/payloads.h"

#include "common/base/memory/alloc.h"

enum {
    HELD_MAX = GP_LINK_BLOBS_MAX - 64, /* payloads held by one worker */
    RELEASE_AT_ONCE = 256,             /* payloads released together when a worker holds too many */
};

static uint64_t bit_of(const team_worker *worker)
{
    return (uint64_t)1 << (worker->number - 1);
}

/* Return the payload's entry; add one if necessary. NULL: out of memory. */
static payload_entry *entry_find(team_payloads *payloads, gp_broadcast *shared)
{
    for (uint32_t i = payloads->count; i > 0; i--)
        if (payloads->entries[i - 1].shared == shared)
            return &payloads->entries[i - 1];
    payload_entry *grown = gp_array_grow(payloads->entries, payloads->count, sizeof(*grown));

    if (grown == NULL)
        return NULL;
    payloads->entries = grown;
    atomic_fetch_add(&shared->references, 1);
    payloads->entries[payloads->count] = (payload_entry){ .shared = shared };
    return &payloads->entries[payloads->count++];
}

/* Put a release into the worker's ring. Return false if the ring is full. */
static bool entry_release(payload_entry *entry, team_worker *worker)
{
    gp_call *call = gp_link_reserve(worker->link, 0);

    if (call == NULL)
        return false;
    call->kind = GP_CALL_RELEASE;
    call->blob = entry->shared->number;
    worker->dirty = true;
    worker->releasing++;
    entry->workers &= ~bit_of(worker);
    entry->releasing |= bit_of(worker);
    return true;
}

bool payloads_send(team_payloads *payloads, team_worker *worker, gp_broadcast *shared)
{
    const gp_control_socket_request request = { .what = GP_CONTROL_SOCKET_BLOB, .lease = shared->number };
    payload_entry *entry = entry_find(payloads, shared);
    gp_error err;

    if (entry == NULL)
        return false;
    if ((entry->workers & bit_of(worker)) != 0)
        return true;

    /* Count releases as executed if the link is idle: the worker has then processed the whole
     * ring. */
    if ((worker->held >= HELD_MAX || (entry->releasing & bit_of(worker)) != 0) && worker->releasing != 0 &&
        gp_link_idle(worker->link)) {
        for (uint32_t i = 0; i < payloads->count; i++)
            payloads->entries[i].releasing &= ~bit_of(worker);
        worker->held -= worker->releasing;
        worker->releasing = 0;
    }

    /* Release the oldest payloads. */
    if (worker->held >= HELD_MAX && worker->releasing == 0)
        for (uint32_t i = 0; i < payloads->count && worker->releasing < RELEASE_AT_ONCE; i++)
            if ((payloads->entries[i].workers & bit_of(worker)) != 0 &&
                !entry_release(&payloads->entries[i], worker))
                break;
    if (worker->held >= HELD_MAX || (entry->releasing & bit_of(worker)) != 0)
        return false;

    /* The socket queue is full, or the worker failed. The control socket reports a failure
     * separately. */
    if (gp_control_socket_send_fd(worker->control_socket, &request, shared->fd, &err) != GP_OK)
        return false;
    entry->workers |= bit_of(worker);
    worker->held++;
    return true;
}

void payloads_forget(team_payloads *payloads, const team_worker *worker)
{
    for (uint32_t i = 0; i < payloads->count; i++) {
        payloads->entries[i].workers &= ~bit_of(worker);
        payloads->entries[i].releasing &= ~bit_of(worker);
    }
}

void payloads_release_unused(team_payloads *payloads, team_worker *workers, uint32_t worker_count)
{
    uint64_t seen = shared_left_count();
    bool released = true;

    for (uint32_t i = payloads->count; released && i > 0; i--) {
        payload_entry *entry = &payloads->entries[i - 1];

        if (atomic_load(&entry->shared->users) != 0)
            continue;
        for (uint32_t w = 0; released && w < worker_count; w++)
            if ((entry->workers & bit_of(&workers[w])) != 0 && workers[w].stage == TEAM_UP &&
                !workers[w].corrupt)
                released = entry_release(entry, &workers[w]);
        if (released) {
            shared_drop(entry->shared);
            *entry = payloads->entries[--payloads->count];
        }
    }
    payloads->left_seen = released ? seen : seen - 1; /* a ring is full: retry soon */
}

void payloads_deinit(team_payloads *payloads)
{
    for (uint32_t i = 0; i < payloads->count; i++)
        shared_drop(payloads->entries[i].shared);
    gp_free(payloads->entries);
}
