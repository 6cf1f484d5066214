#include <string.h>

#include "client/team/calls.h"
#include "client/team/shared.h"
#include "common/base/memory/alloc.h"

/* Return the shared payload without const: the counters and seals change, the bytes never do. */
static gp_broadcast *shared_of(const team_call *call)
{
    return (gp_broadcast *)(uintptr_t)call->shared;
}

static gp_status move_to_file(team_call *copy, gp_error *err)
{
    gp_broadcast *shared;
    gp_status status = gp_broadcast_new(&shared, copy->payload, copy->bytes, err);

    if (status != GP_OK)
        return status;
    copy->payload = NULL;
    copy->bytes = 0;
    copy->shared = shared;
    return GP_OK;
}

gp_status call_copy(team_call *out, const team_call *call, size_t heap_max, void *in_place, gp_error *err)
{
    bool in_memory = call->bytes > CALL_IN_PLACE_MAX || in_place == NULL;
    team_call copy = *call;
    gp_status status = GP_OK;

    if (call->bytes == 0)
        copy.payload = NULL;
    if (call->bytes > GP_LINK_INLINE_MAX && call->shared != NULL)
        return gp_fail(err, GP_ELIMIT, "%zu bytes in addition to a shared payload; the maximum is %d",
                       call->bytes, GP_LINK_INLINE_MAX);
    if (call->shared != NULL)
        status = shared_seal(shared_of(call), err);
    if (status == GP_OK && call->bytes > heap_max) {
        status = move_to_file(&copy, err);
    } else if (status == GP_OK && call->bytes > 0 && !(in_memory && call->borrowed)) {
        void *memory = in_memory ? gp_malloc(call->bytes) : in_place;

        if (memory == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for an argument of %zu bytes", call->bytes);
        copy.payload = memcpy(memory, call->payload, call->bytes);
        copy.borrowed = false;
    }
    if (status != GP_OK)
        return status;
    if (call->shared != NULL)
        atomic_fetch_add(&shared_of(call)->users, 1);
    *out = copy;
    return GP_OK;
}

bool call_share(team_call *call)
{
    team_call moved = *call;

    if (call->bytes <= GP_LINK_INLINE_MAX)
        return true;
    if (move_to_file(&moved, NULL) != GP_OK)
        return false;
    call_free(call, NULL);
    *call = moved;
    return true;
}

void call_free(team_call *call, const void *in_place)
{
    if (call->payload != in_place && !call->borrowed)
        gp_free((void *)(uintptr_t)call->payload);
    shared_leave(shared_of(call));
    call->payload = NULL;
    call->bytes = 0;
    call->shared = NULL;
    call->borrowed = false;
}
