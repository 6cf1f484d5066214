#include <string.h>

#include "client/team/calls.h"
#include "client/team/shared.h"
#include "common/base/memory/alloc.h"

/* Return the shared payload without const: the counters and seals change, the bytes never do. */
static gp_broadcast *shared_of(const team_call *call)
{
    return (gp_broadcast *)(uintptr_t)call->shared;
}

gp_status call_copy(team_call *out, const team_call *call, size_t heap_max, void *in_place, gp_error *err)
{
    bool in_memory = call->bytes > CALL_IN_PLACE_MAX || in_place == NULL;
    gp_broadcast *file = NULL;
    void *memory = NULL;
    gp_status status = GP_OK;

    if (call->bytes > GP_LINK_INLINE_MAX && call->shared != NULL)
        return gp_fail(err, GP_ELIMIT, "%zu bytes in addition to a shared payload; the maximum is %d",
                       call->bytes, GP_LINK_INLINE_MAX);
    if (call->shared != NULL)
        status = shared_seal(shared_of(call), err);
    if (status == GP_OK && call->bytes > heap_max) {
        status = gp_broadcast_new(&file, call->payload, call->bytes, err);
    } else if (status == GP_OK && call->bytes > 0 && !(in_memory && call->borrowed)) {
        memory = in_memory ? gp_malloc(call->bytes) : in_place;
        if (memory == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for an argument of %zu bytes", call->bytes);
        memcpy(memory, call->payload, call->bytes);
    }
    if (status != GP_OK)
        return status;
    if (call->shared != NULL)
        atomic_fetch_add(&shared_of(call)->users, 1);

    /* A second copy of the struct would cost a no-op call 4 % of its round trip. */
    *out = *call;
    if (memory != NULL || call->bytes == 0) {
        out->payload = memory;
        out->borrowed = false;
    }
    if (file != NULL) {
        out->payload = NULL;
        out->bytes = 0;
        out->shared = file;
    }
    return GP_OK;
}

bool call_share(team_call *call)
{
    gp_broadcast *file;

    if (call->bytes <= GP_LINK_INLINE_MAX)
        return true;
    if (gp_broadcast_new(&file, call->payload, call->bytes, NULL) != GP_OK)
        return false;
    call_free(call, NULL);
    call->shared = file;
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
