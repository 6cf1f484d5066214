/* Detect whether this process is a forked child of the process that opened a handle.
 *
 * A child created by fork() has copies of its parent's handles but none of the threads that serve
 * them, and it shares sockets and rings with the parent. Each handle therefore stores the
 * gp_forks() value at opening. If the value differs later, the caller is a child and must not use
 * the handle. */
#ifndef GP_FORKS_H
#define GP_FORKS_H

#include <stdint.h>

/* Return the number of fork() calls between program start and this process. */
uint32_t gp_forks(void);

#endif
