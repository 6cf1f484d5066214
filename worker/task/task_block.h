/* task_block.h -- the group in which the ranks of spmd blocks talk; task_block.c and task_comm.c share it.
 *
 * A group is formed for the first block that needs it and stays for later ones of the same number, which the client
 * gives: it counts on when the lease has a new generation, when other workers take part, and when a block may have
 * left something behind (it failed, or messages were sent that nobody received).  So an empty block costs a call and
 * an answer per worker.  Forming never hangs: a worker that is gone ends it, and so does the client's stop. */
#ifndef GP_TASK_BLOCK_H
#define GP_TASK_BLOCK_H

#include "worker/comm/comm.h"
#include "worker/task/task_state.h"

enum { GP_BLOCKS_KEPT_MAX = 65536 }; /* blocks whose results wait to be fetched or forgotten */

/* Memory that stays until the task ends. */
typedef struct gp_task_memory {
    struct gp_task_memory *next;
    _Alignas(64) unsigned char data[];
} gp_task_memory;

typedef struct gp_task_group {
    gp_comm *comm;   /* NULL: none */
    uint32_t number; /* 0 = not formed, or of no use any more */
    uint32_t rank, world;
    bool broken;      /* an operation of this block failed for all */
    uint32_t balance; /* messages sent less messages received in this block, modulo 2^32 */
    void *received;   /* the message received last */
    size_t received_bytes;
    gp_task_memory *memory;
    uint32_t models; /* whose memory is in the arena */
} gp_task_group;

/* gp_group_join -- be in the group that a call asks for: in the present one, or in a new one.
 * GP_EINVAL: it makes no sense.  GP_ESTALE: of another generation of the lease.  GP_EPEER, GP_ECANCELED, ... */
gp_status gp_group_join(gp_task_group *group, gp_tasks *tasks, const gp_taken *call, gp_error *err);
/* The task begins and ends. */
void gp_group_enter(gp_task_group *group, gp_tasks *tasks, uint64_t block);
void gp_group_leave(gp_task_group *group, gp_tasks *tasks);
void gp_group_release(gp_task_group *group); /* what operations of the task gave it */
void gp_group_deinit(gp_task_group *group);

#endif
