/* Limits for the local stream sockets of a daemon. accept.c explains how they are enforced. */
#ifndef GP_ACCEPT_H
#define GP_ACCEPT_H

#include <stdint.h>

/* Set the largest message in bytes that a local connection may send; the default is
 * GP_MESSAGE_BYTES_MAX. Call it before the first bind. */
void gp_accept_limit(uint64_t message_bytes_max);

#endif
