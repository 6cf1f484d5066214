/* call.h -- a call as its sender describes it, and copies of it that outlive the sender's memory. */
#ifndef GP_TEAM_CALL_H
#define GP_TEAM_CALL_H

#include "client/gradpool.h"
#include "proto/task/task_wire.h"

enum { CALL_IN_PLACE_MAX = 32 }; /* bytes of a payload that a copy may keep beside it */

/* The fields of gp_call that the sender chooses (task_wire.h has their meaning by kind), and the payload. */
typedef struct team_call {
    uint8_t kind;  /* gp_call_kind */
    bool borrowed; /* the payload outlives the call; false: copies of the call copy it */
    uint16_t flags;
    uint32_t function; /* number of a function or of a loop */
    uint32_t count;
    uint32_t attempt; /* from 1; 0: counted by the team */
    int64_t first;
    uint64_t id; /* 0: a new one; of a block: the same for all its ranks, from team_new_id() */
    uint64_t value;
    const void *payload;
    size_t bytes;               /* more than GP_LINK_INLINE_MAX become a blob, unless `shared` is set */
    const gp_broadcast *shared; /* the blob, kept alive by copies of the call; NULL: none */
} team_call;

/* call_copy -- copy a call with its payload; *out is released with call_free().
 *   heap_max  bytes beyond which the payload becomes a memory file at once: its descriptor is held until call_free()
 *   in_place  [CALL_IN_PLACE_MAX] for a short payload, which *out points to; NULL: none
 * GP_ELIMIT: the payload has a blob and more than GP_LINK_INLINE_MAX bytes.  GP_ENOMEM, GP_EIO. */
gp_status call_copy(team_call *out, const team_call *call, size_t heap_max, void *in_place, gp_error *err);
/* Move a copied payload that is too long for the ring into a memory file.  False: try again later. */
bool call_share(team_call *call);
/* Replace the payload of a copy by a text; NULL if there is no memory. */
void call_set_text(team_call *call, const char *text, const void *in_place);
/* Release the payload of a copy. */
void call_free(team_call *call, const void *in_place);

#endif
