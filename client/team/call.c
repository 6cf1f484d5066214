#include <string.h>

#include "client/team/calls.h"
#include "client/team/shared.h"
#include "common/base/memory/alloc.h"

/* Return the shared payload without const: the counters and seals change, the bytes never do. */
static gp_broadcast *shared_of(const team_call *call)
{
    return (gp_broadcast *)(uintptr_t)call->shared;
}

/* Move the payload into a new memory file. On an error the call is unchanged. */
static gp_status call_to_file(team_call *call, gp_error *err)
{
    gp_broadcast *file;
    gp_status status = gp_broadcast_new(&file, call->payload, call->bytes, err);

    if (status == GP_OK) {
        call_free(call, NULL);
        call->shared = file;
    }
    return status;
}

gp_status call_own(team_call *call, size_t heap_max, void *in_place, gp_error *err)
{
    bool in_memory = call->bytes > CALL_IN_PLACE_MAX || in_place == NULL;

    if (call->shared != NULL) {
        if (call->bytes > GP_LINK_INLINE_MAX)
            return gp_fail(err, GP_ELIMIT, "%zu bytes in addition to a shared payload; the maximum is %d",
                           call->bytes, GP_LINK_INLINE_MAX);
        gp_status status = shared_seal(shared_of(call), err);

        if (status != GP_OK)
            return status;
    }
    if (call->bytes > heap_max) {
        call->borrowed = true;
        return call_to_file(call, err);
    }
    if (call->bytes == 0) {
        call->payload = NULL;
    } else if (!in_memory || !call->borrowed) {
        void *memory = in_memory ? gp_malloc(call->bytes) : in_place;

        if (memory == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for an argument of %zu bytes", call->bytes);
        memcpy(memory, call->payload, call->bytes);
        call->payload = memory;
        call->borrowed = false;
    }
    if (call->shared != NULL)
        atomic_fetch_add(&shared_of(call)->users, 1);
    return GP_OK;
}

bool call_share(team_call *call)
{
    return call->bytes <= GP_LINK_INLINE_MAX || call_to_file(call, NULL) == GP_OK;
}

void call_free(team_call *call, const void *in_place)
{
    if (call->payload != in_place && !call->borrowed)
        gp_free((void *)(uintptr_t)call->payload);
    if (call->shared != NULL)
        shared_leave(shared_of(call));
    call->payload = NULL;
    call->bytes = 0;
    call->shared = NULL;
    call->borrowed = false;
}
