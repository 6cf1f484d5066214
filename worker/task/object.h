/* object.h -- task code: shared objects that arrive as blobs, and the functions in them.
 *
 * Each object is loaded once per process, independent of the object name, and never unloaded,
 * because pointers into the code may exist anywhere. Object and function numbers belong to one
 * client and become invalid when the client's link ends. All functions run on the compute
 * thread. */
#ifndef GP_OBJECT_H
#define GP_OBJECT_H

#include "worker/task/task_state.h"

enum { GP_OBJECT_BYTES_MAX = 256 << 20 };

gp_status gp_objects_new(gp_objects **out, gp_error *err);
void gp_objects_free(gp_objects *objects);   /* accepts NULL; loaded objects stay loaded */
void gp_objects_forget(gp_objects *objects); /* invalidate all numbers */

/* Handle the calls that load an object and look up a function.
 *
 *   GP_EPERM     load: others could write the file
 *   GP_ELIMIT    load: too many objects, or the file is too large
 *   GP_ECORRUPT  load: the contents differ from the announced digest
 *   GP_EINVAL    load: not a task object
 *   GP_EVERSION  load: built for another task ABI
 *   GP_ENOENT    function: not found; the message lists the available functions */
gp_status gp_object_load(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_object_function(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);

/* Return the function with this number. NULL, with GP_ENOENT: no such function. */
void *gp_objects_find(const gp_objects *objects, uint32_t number, gp_error *err);

/* Get or set the duration of the function's last call. INT64_MAX: not called yet. */
int64_t gp_objects_last_ns(const gp_objects *objects, uint32_t number);
void gp_objects_took(gp_objects *objects, uint32_t number, int64_t ns);

#endif
