/* descendants.h -- what a process has started, however far down, and the end of all of it.
 *
 * A subreaper (PR_SET_CHILD_SUBREAPER) becomes the parent of every descendant whose own parent has died, so none
 * can leave by forking twice or by a session of its own, and "no child is left" means that no descendant is. */
#ifndef GP_DESCENDANTS_H
#define GP_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* gp_descendants_signal -- send signal to every descendant of root (root itself is left out) that /proc shows now.
 * One that is born meanwhile can be missed: SIGKILL is sent again until none is left. */
void gp_descendants_signal(pid_t root, int signal);

/* gp_descendants_signal_trees -- the same for `count` leaders of groups: first each one's whole group, then those below
 * them that have left the group; each once.  /proc is read once for all. */
void gp_descendants_signal_trees(const pid_t *leaders, size_t count, int signal);

/* gp_descendants_end -- SIGKILL all descendants of the calling process, a subreaper, and reap them.
 * each (may be NULL) hears of every child that is reaped.  false: some are left after timeout_ms (one in an
 * uninterruptible wait; its end is certain, its time is not). */
bool gp_descendants_end(int timeout_ms, void (*each)(void *context, pid_t pid, int status), void *context);

#endif
