/* transport.h -- what a transport of comm.h implements.  comm.c checks arguments and keeps the counts, so a
 * slot sees only calls that make sense within a formed group. */
#ifndef GP_COMM_TRANSPORT_H
#define GP_COMM_TRANSPORT_H

#include <stdatomic.h>

#include "worker/comm/comm.h"

/* The arguments of a collective on elements. */
typedef struct gp_comm_call {
    void *buffer;
    size_t offset; /* of buffer in the arena, where it must be in it */
    size_t count;
    gp_dtype type;
    gp_comm_reduction how;
} gp_comm_call;

/* All slots required. */
struct gp_comm_ops {
    const char *name;
    gp_status (*open)(gp_comm **out, gp_error *err);
    void (*close)(gp_comm *comm);
    gp_status (*form)(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err);
    void (*abort)(gp_comm *comm, uint32_t generation);
    uint8_t *(*arena)(const gp_comm *comm, uint32_t rank); /* that rank's arena, as it is mapped here */
    gp_status (*all_reduce)(gp_comm *comm, const gp_comm_call *call, gp_error *err);
    gp_status (*all_reduce_private)(gp_comm *comm, const gp_comm_call *call, gp_error *err);
    gp_status (*reduce_scatter)(gp_comm *comm, const gp_comm_call *call, gp_error *err);
    gp_status (*all_gather)(gp_comm *comm, const gp_comm_call *call, gp_error *err);
    gp_status (*broadcast)(gp_comm *comm, const gp_comm_call *call, uint32_t root, gp_error *err);
    gp_status (*broadcast_private)(gp_comm *comm, const gp_comm_call *call, uint32_t root, gp_error *err);
    gp_status (*gather_private)(gp_comm *comm, void *all, const size_t *parts, gp_error *err);
    gp_status (*barrier)(gp_comm *comm, gp_error *err);
    gp_status (*look)(gp_comm *comm, bool *left, gp_error *err);
    gp_status (*send)(gp_comm *comm, uint32_t rank, uint32_t tag, const void *data, size_t bytes,
                      gp_error *err);
    gp_status (*receive)(gp_comm *comm, uint32_t rank, uint32_t tag, void *buffer, size_t capacity,
                         gp_comm_message *message, gp_error *err);
    gp_status (*probe)(gp_comm *comm, uint32_t rank, uint32_t tag, bool *found, gp_comm_message *message,
                       gp_error *err);
    void (*section)(gp_comm *comm, uint64_t section, bool over);
};

/* A transport's own struct begins with this.  Written by form() only, but for the counts. */
struct gp_comm {
    const gp_comm_ops *ops;
    uint32_t rank, world, generation; /* world 0: no group */
    uint8_t *arena;                   /* ours; the transport's */
    size_t arena_bytes, arena_used;
    bool sparse; /* the arena's memory comes and goes with its ranges */
    _Atomic uint64_t operations, bytes, wait_ns, total_ns; /* written by the operating thread only */
};

#endif
