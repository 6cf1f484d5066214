/* multinode.h -- network settings for NCCL between hosts: the interface, InfiniBand or RoCE, and
 * GPUDirect RDMA, in which a network card accesses GPU memory directly. Reads /sys and /proc,
 * reports the result and sets NCCL environment variables. */
#ifndef GP_MULTINODE_H
#define GP_MULTINODE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

/* This host's network, as relevant to NCCL. */
typedef struct gp_multinode {
    /* value for NCCL_SOCKET_IFNAME: "=eth0" for exactly this interface, or the user's value */
    char interface[64];
    unsigned speed;     /* interface speed in Mbit/s; 0: unknown */
    char card[64];      /* first InfiniBand or RoCE card with an active port; "": none */
    bool direct;        /* GPUDirect RDMA is available */
    const char *reason; /* why GPUDirect RDMA is available or not */
} gp_multinode;

/* Detect the network without changing the environment.
 *   root  prefix for /sys and /proc, used in tests; "" otherwise
 * GP_ENODEV: no interface is up. GP_EINVAL: NCCL_SOCKET_IFNAME matches no interface that is up;
 * the message lists the names of all that are. */
gp_status gp_multinode_detect(gp_multinode *out, const char *root, gp_error *err);

/* Set the NCCL environment variables that the user has not set. Must precede the first use of
 * NCCL in the process. */
void gp_multinode_set(const gp_multinode *found);

/* Describe the network in one sentence. *warning: the configuration is slower than it could be. */
void gp_multinode_describe(const gp_multinode *found, char *text, size_t bytes, bool *warning);

#endif
