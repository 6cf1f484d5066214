/* Inherited process attributes of a scheduler, such as limits and environment variables.
 *
 * The user starts the first scheduler of a pool and sets attributes on purpose, for example with
 * `taskset`, `nice` or `ulimit` before `gradpool up`. After a crash, any client may start the next
 * scheduler, with arbitrary attributes. The new scheduler therefore restores the attributes
 * of the first one from the pool record (pool_record.h).
 *
 *   always the same   no descriptors except 0 to 2 and those handed over; own session without
 *                     terminal; working directory /; umask 077; only SIGPIPE and SIGXFSZ ignored;
 *                     only signals that the daemon reads blocked
 *   from the first    allowed cores, niceness, scheduling policy, soft limits, oom_score_adj, and
 *                     the variables listed in process_env.c
 *   from the starter  other variables; hard limits, cgroup, namespaces and uid, which cannot be
 *                     restored
 *
 * Workers inherit all of this from the scheduler. */
#ifndef GP_PROCESS_ENV_H
#define GP_PROCESS_ENV_H

#include "common/base/memory/buffer.h"

/* Set the attributes that are always the same. Call this once, before opening any descriptor. */
void gp_process_env_detach(void);

/* Write the attributes that a later scheduler restores, as lines of text. */
gp_status gp_process_env_write(gp_buffer *out, gp_error *err);

/* Restore attributes from lines of text. Unknown lines are skipped. An attribute that cannot be
 * restored, such as a lower niceness or a limit above the hard limit, is left unchanged and
 * logged. */
void gp_process_env_restore(const char *text);

#endif
