/* forks.h -- whether this process is the one that opened a handle.
 *
 * A child made by fork() has copies of the handles of its parent, but not the threads that serve them, and it shares
 * sockets and rings with the parent.  A handle therefore keeps gp_forks() of when it was opened; another value later
 * means that the caller is such a child, which must not use the handle. */
#ifndef GP_FORKS_H
#define GP_FORKS_H

#include <stdint.h>

/* Return how many fork() calls lie between the start of the program and this process. */
uint32_t gp_forks(void);

#endif
