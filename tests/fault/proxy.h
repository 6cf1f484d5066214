/* proxy.h: a TCP proxy between a client and a pool that injects network faults.
 *
 * The proxy is one process with one poll loop. Shared memory controls the fault, which applies to
 * all connections from the next byte on. The proxy does not interpret the data. */
#ifndef GP_TEST_FAULT_PROXY_H
#define GP_TEST_FAULT_PROXY_H

#include <stdint.h>
#include <sys/types.h>

typedef enum proxy_fault {
    PROXY_PASS,       /* forwards without faults */
    PROXY_DELAY,      /* delays every byte by `amount` ms */
    PROXY_THROTTLE,   /* `amount` bytes/s in each direction of a connection */
    PROXY_CUT,        /* after `amount` more bytes, anywhere in the data, both ends see the end (FIN) */
    PROXY_RESET,      /* the same with RST */
    PROXY_HALF_CLOSE, /* the same in one direction only; the other continues */
    PROXY_CORRUPT,    /* flips one bit in every `amount` bytes */

    /* drops all data of current and new connections forever, including their end */
    PROXY_BLACK_HOLE,

    /* new connections reach the pool in groups of three, last one first, or after `amount` ms */
    PROXY_REORDER,
    PROXY_REFUSE, /* has no listener and resets all connections */
    PROXY_FAULTS,
} proxy_fault;

extern const char *const proxy_fault_names[PROXY_FAULTS];

struct proxy_shared;

typedef struct proxy {
    pid_t pid;
    int port; /* on 127.0.0.1, in the network namespace of the caller */
    struct proxy_shared *shared;
} proxy;

/* Start a proxy to a pool at a dotted address. Return 0 on failure, with errno set. */
int proxy_start(proxy *p, const char *to, int to_port, uint32_t seed);
void proxy_set(proxy *p, proxy_fault fault, uint32_t amount); /* returns when the fault is active */
void proxy_stop(proxy *p);

typedef struct proxy_counts {
    uint64_t links, bytes, bits_changed, ended; /* ended: by a fault */
} proxy_counts;
proxy_counts proxy_get_counts(const proxy *p);

#endif
