/* proxy.h -- a TCP proxy between a client and a pool that does on purpose what networks do.
 *
 * One process with one poll loop; what it does is told through shared memory and holds for all its connections from the next
 * byte on.  It knows nothing of what it carries. */
#ifndef GP_TEST_FAULT_PROXY_H
#define GP_TEST_FAULT_PROXY_H

#include <stdint.h>
#include <sys/types.h>

typedef enum proxy_fault {
    PROXY_PASS,     /* as a good network */
    PROXY_DELAY,    /* every byte comes `amount` ms later */
    PROXY_THROTTLE, /* `amount` bytes a second, in each direction of a connection */
    PROXY_CUT, /* after `amount` bytes more, in the middle of whatever that is, both ends see the end (FIN) */
    PROXY_RESET,      /* the same with RST */
    PROXY_HALF_CLOSE, /* the same, but one direction only: the other goes on */
    PROXY_CORRUPT,    /* of every `amount` bytes one bit is another */
    PROXY_BLACK_HOLE, /* nothing of these connections and of new ones is heard any more, for ever; nor is their end */
    PROXY_REORDER, /* new connections reach the pool in threes, the last one first, or after `amount` ms */
    PROXY_REFUSE,  /* there is no listener, and the connections that there were are reset */
    PROXY_FAULTS,
} proxy_fault;

extern const char *const proxy_fault_names[PROXY_FAULTS];

struct proxy_shared;

typedef struct proxy {
    pid_t pid;
    int port; /* of 127.0.0.1, in the network namespace of the starter */
    struct proxy_shared *shared;
} proxy;

/* False: errno.  to: dotted address of the pool. */
int proxy_start(proxy *p, const char *to, int to_port, uint32_t seed);
void proxy_set(proxy *p, proxy_fault fault, uint32_t amount); /* returns when it does so */
void proxy_stop(proxy *p);

typedef struct proxy_counts {
    uint64_t links, bytes, bits_changed, ended; /* ended: by a fault */
} proxy_counts;
proxy_counts proxy_get_counts(const proxy *p);

#endif
