/* call.h: a call as described by its sender, and copies of it that outlive the sender's memory. */
#ifndef GP_TEAM_CALL_H
#define GP_TEAM_CALL_H

#include "client/gradpool.h"
#include "proto/task/task_wire.h"

/* bytes of a payload that a copy can store inside its own structure */
enum { CALL_IN_PLACE_MAX = 32 };

/* Fields of gp_call that the sender sets, and the payload. task_wire.h defines them for each
 * kind. */
typedef struct team_call {
    uint8_t kind;  /* gp_call_kind */
    bool borrowed; /* the payload outlives the call; false: copies of the call copy it */
    uint16_t flags;
    uint32_t function; /* function or loop number */
    uint32_t count;
    uint32_t attempt; /* from 1; 0: set by the team */
    int64_t first;

    /* 0: assign a new id. All ranks of an SPMD block share one id from team_new_id(). */
    uint64_t id;
    uint64_t value;
    const void *payload;

    /* a payload above GP_LINK_INLINE_MAX becomes a blob, unless `shared` is set */
    size_t bytes;
    const gp_broadcast *shared; /* the blob, kept alive by copies of the call; NULL: none */
} team_call;

/* Copy a call with its payload. Release *out with call_free().
 *   heap_max  a longer payload becomes a memory file at once; its descriptor stays open until
 *             call_free()
 *   in_place  [CALL_IN_PLACE_MAX] buffer for a short payload, referenced by *out; NULL: none
 * GP_ELIMIT: the call has a blob and also more than GP_LINK_INLINE_MAX bytes. GP_ENOMEM: out of
 * memory. GP_EIO: cannot create or seal a memory file. */
gp_status call_copy(team_call *out, const team_call *call, size_t heap_max, void *in_place, gp_error *err);

/* Move a copied payload into a memory file if it is too long for the ring. Return false if that
 * fails; retry later. */
bool call_share(team_call *call);

/* Replace a copied payload with a text; with NULL if out of memory. */
void call_set_text(team_call *call, const char *text, const void *in_place);

/* Free the payload of a copy. */
void call_free(team_call *call, const void *in_place);

#endif
