/* surroundings.h -- what a process inherits from the one that starts it, and what a pool's scheduler makes of it.
 *
 * The first scheduler of a pool is started by whoever wants one, and takes from there what is meant for the pool (`taskset`,
 * `nice`, `ulimit` before `gradpool up`).  One that follows a scheduler that died is started by whichever client noticed first,
 * whose surroundings are an accident: it goes on in those of the first, which stand in the pool's record (record.h).
 *
 *   always the same   descriptors: none but 0 to 2 and what is handed over; session of its own, no terminal; folder /; umask 077;
 *                     signals: none ignored but SIGPIPE and SIGXFSZ, none blocked but those that it reads
 *   as the first's    cores it may run on; niceness; scheduling policy; soft limits; oom_score_adj; the variables of the table in
 *                     surroundings.c
 *   as the starter's  other variables; hard limits, cgroup, namespaces, uid: these cannot be changed back
 *
 * Workers inherit all of it from the scheduler. */
#ifndef GP_SURROUNDINGS_H
#define GP_SURROUNDINGS_H

#include "common/base/memory/buffer.h"

/* gp_surroundings_detach -- what is always the same.  Once, before anything is opened. */
void gp_surroundings_detach(void);

/* gp_surroundings_write -- what this process has of what stays as the first's, as lines of text. */
gp_status gp_surroundings_write(gp_buffer *out, gp_error *err);

/* gp_surroundings_restore -- what such lines say; those of others are passed over.  What cannot be had (a lower niceness, more
 * than the hard limit) stays as it is and is logged. */
void gp_surroundings_restore(const char *text);

#endif
