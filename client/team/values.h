/* values.h: named values on the workers, for values.c and tensors.c. */
#ifndef GP_TEAM_VALUES_H
#define GP_TEAM_VALUES_H

#include "client/team/calls.h"

/* Bytes of a value: a head, then the data. data NULL and no bytes: remove the value. */
typedef struct value_bytes {
    const void *head;
    size_t head_bytes;
    const void *data;
    size_t bytes;
} value_bytes;

/* Check the name of a value. GP_EINVAL: missing or too long. */
gp_status value_check_name(const char *name, gp_error *err);

/* Send a value to one worker, or to all (GP_EVERY_WORKER). The payload is the name, NUL and the
 * bytes; or only the name, with the bytes in a blob. */
gp_status value_put(gp_team *team, uint32_t worker, const char *name, const value_bytes *value,
                    gp_error *err);

/* Get a value from one worker. Release *out with team_bytes_deinit(). */
gp_status value_get(gp_team *team, uint32_t worker, const char *name, team_bytes *out, gp_error *err);

/* Convert bytes to a heap block for gp_buffer_free(). GP_ENOMEM: out of memory; `bytes` is
 * unchanged. */
gp_status value_to_heap(team_bytes *bytes, void **data, size_t *count, gp_error *err);

#endif
