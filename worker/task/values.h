/* values.h -- what stays on a worker under a name: values, constants, files.  Compute thread. */
#ifndef GP_VALUES_H
#define GP_VALUES_H

#include "worker/task/task_state.h"

/* One of the three. */
typedef struct gp_kept {
    gp_view view; /* a value */
    void *built;  /* a constant, and how to drop it (NULL = it is not) */
    void (*drop)(void *built);
    int fd;     /* a file; -1 = none */
    char *path; /* by which it can be opened */
} gp_kept;

/* A table of names; count_max: more are refused. */
gp_status gp_names_new(gp_names **out, uint32_t count_max, gp_error *err);
void gp_names_free(gp_names *names); /* accepts NULL; the youngest goes first */

/* NULL when there is none. */
const gp_kept *gp_names_find(const gp_names *names, const char *name);
/* In place of an older one; *kept is handed over on GP_OK.  GP_EINVAL: not a name.  GP_ELIMIT.  GP_ENOMEM. */
gp_status gp_names_set(gp_names *names, const char *name, const gp_kept *kept, gp_error *err);
void gp_names_remove(gp_names *names, const char *name);

/* The handlers of PUT, GET and FILE. */
gp_status gp_value_put_call(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_value_get_call(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_value_file(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);

#endif
