/* Check endpoints on other hosts: tcp://HOST:PORT, for example tcp://10.0.0.5:5555 or
 * tcp://[::1]:5555. */
#ifndef GP_ENDPOINT_H
#define GP_ENDPOINT_H

#include <stdbool.h>

#include "common/base/error.h"

/* Return whether the endpoint starts with "tcp://". */
bool gp_endpoint_is_remote(const char *endpoint);

/* Check an endpoint. With to_listen, the host may be "*" and the port 0 (any free port). GP_EINVAL:
 * not tcp://HOST:PORT, or too long for a message. */
gp_status gp_endpoint_check(const char *endpoint, bool to_listen, gp_error *err);

#endif
