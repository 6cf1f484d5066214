/* values.h -- named data kept on a worker: values, constants and files. Compute thread only. */
#ifndef GP_VALUES_H
#define GP_VALUES_H

#include "worker/task/task_state.h"

/* One named entry: a value, a constant or a file. */
typedef struct gp_cached_value {
    gp_view view; /* value */
    void *built;  /* constant, and the function that drops it (NULL: none) */
    void (*drop)(void *built);
    int fd;     /* file; -1: none */
    char *path; /* path for opening the file */
} gp_cached_value;

/* Create a name table. count_max: maximum entry count. */
gp_status gp_names_new(gp_names **out, uint32_t count_max, gp_error *err);
void gp_names_free(gp_names *names); /* accepts NULL; drops the newest entry first */

/* Find an entry. NULL: none. */
const gp_cached_value *gp_names_find(const gp_names *names, const char *name);

/* Set an entry, replacing an earlier one. *kept is taken over on GP_OK. GP_EINVAL: invalid name.
 * GP_ELIMIT: the table is full. GP_ENOMEM: out of memory. */
gp_status gp_names_set(gp_names *names, const char *name, const gp_cached_value *kept, gp_error *err);
void gp_names_remove(gp_names *names, const char *name);

/* Handle the calls PUT, GET and FILE. */
gp_status gp_value_put_call(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_value_get_call(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_value_file(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);

#endif
