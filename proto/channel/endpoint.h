/* endpoint.h -- addresses of other hosts as people write them: tcp://HOST:PORT, tcp://10.0.0.5:5555, tcp://[::1]:5555. */
#ifndef GP_ENDPOINT_H
#define GP_ENDPOINT_H

#include <stdbool.h>

#include "common/base/error.h"

/* gp_endpoint_is_remote -- whether it begins with "tcp://". */
bool gp_endpoint_is_remote(const char *endpoint);

/* gp_endpoint_check -- GP_EINVAL: it is not tcp://HOST:PORT, or is too long for a message.  to_listen: the host may be "*", the
 * port 0, any that is free. */
gp_status gp_endpoint_check(const char *endpoint, bool to_listen, gp_error *err);

#endif
