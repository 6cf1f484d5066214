/* object.h -- the code of tasks: shared objects that came as blobs, and the functions in them.
 *
 * An object is loaded once per process, whatever it is called, and never unloaded: code of its may be anywhere.  The
 * numbers that a client gave to objects and functions are its own and end with its link.  Compute thread. */
#ifndef GP_OBJECT_H
#define GP_OBJECT_H

#include "worker/task/task_state.h"

enum { GP_OBJECT_BYTES_MAX = 256 << 20 };

gp_status gp_objects_new(gp_objects **out, gp_error *err);
void gp_objects_free(gp_objects *objects);   /* accepts NULL; what is loaded stays so */
void gp_objects_forget(gp_objects *objects); /* all numbers */

/* The handlers.  Errors of load: GP_EPERM (others could write the file), GP_ELIMIT, GP_ECORRUPT (not the content that
 * was announced), GP_EINVAL (no task object), GP_EVERSION (of another ABI).  Of function: GP_ENOENT, which says what
 * there is. */
gp_status gp_object_load(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_object_function(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);

/* The function of that number.  NULL with GP_ENOENT. */
void *gp_objects_find(const gp_objects *objects, uint32_t number, gp_error *err);

/* How long its last call took: INT64_MAX when it was not called yet. */
int64_t gp_objects_last_ns(const gp_objects *objects, uint32_t number);
void gp_objects_took(gp_objects *objects, uint32_t number, int64_t ns);

#endif
