#include "proto/channel/endpoint.h"

#include <stdlib.h>
#include <string.h>

#include "proto/message/limits.h"

bool gp_endpoint_is_remote(const char *endpoint)
{
    return strncmp(endpoint, "tcp://", 6) == 0;
}

gp_status gp_endpoint_check(const char *endpoint, bool to_listen, gp_error *err)
{
    const char *host = gp_endpoint_is_remote(endpoint) ? endpoint + 6 : "";
    const char *colon = strrchr(host, ':');
    size_t host_bytes = colon != NULL ? (size_t)(colon - host) : 0;
    size_t digits = colon != NULL ? strspn(colon + 1, "0123456789") : 0;
    long port = digits > 0 && digits <= 5 && colon[1 + digits] == '\0' ? strtol(colon + 1, NULL, 10) : -1;

    /* IPv6 addresses need brackets; host names and IPv4 addresses contain no colon. */
    bool bracketed = host_bytes > 2 && host[0] == '[' && host[host_bytes - 1] == ']';
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    bool sound = bracketed ? strspn(host + 1, "0123456789abcdefABCDEF:.%") == host_bytes - 2
                           : host_bytes > 0 && (strspn(host, plain) == host_bytes ||
                                                (to_listen && host_bytes == 1 && host[0] == '*'));

    if (sound && port >= (to_listen ? 0 : 1) && port <= 65535 && strlen(endpoint) < GP_TEXT_ENDPOINT)
        return GP_OK;
    return gp_fail(err, GP_EINVAL,
                   to_listen ? "invalid endpoint '%.120s': use tcp://ADDRESS:PORT with an address of this "
                               "host, or tcp://*:PORT for all addresses"
                             : "invalid endpoint '%.120s': use tcp://HOST:PORT",
                   endpoint);
}
