/* Finds and kills all descendants of a process.
 *
 * A subreaper (PR_SET_CHILD_SUBREAPER) becomes the parent of every descendant whose own parent
 * exited. A descendant therefore cannot escape by forking twice or by starting a session, and a
 * subreaper without children has no descendants. */
#ifndef GP_DESCENDANTS_H
#define GP_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Send a signal to `count` process groups and to all descendants of their leaders that left the
 * group. Each process receives the signal once. Reads /proc once for all leaders. */
void gp_descendants_signal_trees(const pid_t *leaders, size_t count, int signal);

/* Kill all descendants of the calling process, which must be a subreaper, with SIGKILL and reap
 * them.
 *   timeout_ms  time limit; a process in an uninterruptible wait can exceed it
 *   each        called for every reaped child; may be NULL
 * false: some descendants are left. */
bool gp_descendants_end(int timeout_ms, void (*each)(void *context, pid_t pid, int status), void *context);

#endif
