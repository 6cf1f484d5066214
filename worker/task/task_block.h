/* task_block.h -- the communication group for ranks in spmd blocks; used by task_block.c and
 * task_comm.c.
 *
 * A group is formed for the first block that needs it and reused for later blocks with the same
 * group number. The client chooses the number. It increments the number when the lease has a new
 * generation, when other workers take part, and when a block may have left messages (it failed,
 * or sent messages that no rank received). So an empty block costs one call and one answer per
 * worker. Forming a group cannot hang: a failed worker or a stop from the client ends it. */
#ifndef GP_TASK_BLOCK_H
#define GP_TASK_BLOCK_H

#include "worker/comm/comm.h"
#include "worker/task/task_state.h"

enum { GP_BLOCKS_KEPT_MAX = 65536 }; /* maximum number of blocks with kept results */

/* Memory that is freed when the task ends. */
typedef struct gp_task_memory {
    struct gp_task_memory *next;
    _Alignas(64) unsigned char data[];
} gp_task_memory;

/* A block's communication group. */
typedef struct gp_task_group {
    gp_comm *comm;   /* NULL: no group */
    uint32_t number; /* group number; 0: not formed, or unusable */
    uint32_t rank, world;
    bool broken;      /* an operation of this block failed on all ranks */
    uint32_t balance; /* messages sent minus messages received in this block, modulo 2^32 */
    void *received;   /* last message received */
    size_t received_bytes;
    gp_task_memory *memory;
    uint32_t models; /* models whose memory is in the arena */
} gp_task_group;

/* Join the group that a call requires: the current one or a new one. GP_EPROTO, GP_EINVAL: invalid
 * parameters. GP_ESTALE: the call belongs to another lease generation. GP_EPEER, GP_ECANCELED: see
 * gp_comm_form(). */
gp_status gp_group_join(gp_task_group *group, gp_tasks *tasks, const gp_taken *call, gp_error *err);

/* Start and end a task's use of the group. */
void gp_group_enter(gp_task_group *group, gp_tasks *tasks, uint64_t block);
void gp_group_leave(gp_task_group *group, gp_tasks *tasks);
void gp_group_release(gp_task_group *group); /* free the memory of operations in this task */
void gp_group_deinit(gp_task_group *group);

#endif
