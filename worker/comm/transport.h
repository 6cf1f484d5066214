/* The interface that a transport implements for comm.h. comm.c checks all arguments and maintains
 * the counters, so a slot is called only with valid arguments and, except for form(), within a
 * formed group. */
#ifndef GP_COMM_TRANSPORT_H
#define GP_COMM_TRANSPORT_H

#include <stdatomic.h>

#include "worker/comm/comm.h"

/* Arguments of a collective on elements. */
typedef struct gp_comm_call {
    void *buffer;
    size_t offset; /* buffer offset in the arena, if the buffer must be in the arena */
    /* elements */
    size_t count;
    gp_dtype type;
    gp_comm_reduction how;
} gp_comm_call;

/* Function table of a transport. All slots are required. */
struct gp_comm_ops {
    const char *name;
    gp_status (*open)(gp_comm **out, gp_error *err);
    void (*close)(gp_comm *comm);
    gp_status (*form)(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err);
    void (*abort)(gp_comm *comm, uint32_t generation);
    /* address in this process of the arena of `rank` */
    uint8_t *(*arena)(const gp_comm *comm, uint32_t rank);
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
    /* enter (`over` false) or leave a section */
    void (*section)(gp_comm *comm, uint64_t section, bool over);
};

/* Common first member of every transport's struct. Only form() writes it, except for the
 * counters. */
struct gp_comm {
    const gp_comm_ops *ops;
    uint32_t rank, world, generation; /* world 0: no group */
    uint8_t *arena;                   /* own arena, owned by the transport */
    /* capacity and allocated bytes */
    size_t arena_bytes, arena_used;
    bool sparse; /* ranges commit memory on allocation */
    /* counters, written only by the thread that runs operations */
    _Atomic uint64_t operations, bytes, wait_ns, total_ns;
};

#endif
