/* multinode.h -- what NCCL needs between hosts: which interface, whether InfiniBand or RoCE is there, whether a network card
 * may read a GPU's memory by itself (GPUDirect RDMA).  Looks at /sys and /proc, tells, and sets NCCL's environment. */
#ifndef GP_MULTINODE_H
#define GP_MULTINODE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

typedef struct gp_multinode {
    char interface[64]; /* for NCCL_SOCKET_IFNAME: "=eth0" for that one, or as it was set */
    unsigned speed;     /* of it, Mbit/s; 0: not known */
    char card[64];      /* the first InfiniBand or RoCE card with an active port; "" none */
    bool direct;        /* GPUDirect RDMA is there */
    const char *reason; /* why it is or is not, in words */
} gp_multinode;

/* gp_multinode_look -- what is there, without a change.
 *   root  "" or a directory that stands for the machine's, in tests
 * GP_ENODEV: no interface is up.  GP_EINVAL: NCCL_SOCKET_IFNAME names none that is; the message lists those that are. */
gp_status gp_multinode_look(gp_multinode *out, const char *root, gp_error *err);

/* Into NCCL's environment, as far as the user has not set it; before the process uses NCCL for the first time. */
void gp_multinode_set(const gp_multinode *found);

/* One sentence; *warning: something is slower than it could be. */
void gp_multinode_describe(const gp_multinode *found, char *text, size_t bytes, bool *warning);

#endif
