/* accept.h -- limits on the local stream sockets of a daemon, see accept.c. */
#ifndef GP_ACCEPT_H
#define GP_ACCEPT_H

#include <stdint.h>

/* gp_accept_limit -- set the largest message, in bytes, that a local connection may send; call it before the first bind.
 * The default is GP_MESSAGE_BYTES_MAX. */
void gp_accept_limit(uint64_t message_bytes_max);

#endif
