/* current_work.h -- what the control thread has asked the compute thread to do, and for which client. */
#ifndef GP_CURRENT_WORK_H
#define GP_CURRENT_WORK_H

#include "worker/process/mailbox.h"

typedef enum work_kind { WORK_IDLE, WORK_TRAINING, WORK_PREDICTING, WORK_TASKS, WORK_PREPARING } work_kind;

typedef struct current_work {
    work_kind kind;       /* WORK_IDLE: the last reply was sent */
    gp_peer peer;         /* client that receives the replies */
    gp_envelope envelope; /* of those replies */
    uint32_t world;       /* ranks of the training: the first members of the grant */
    uint32_t lost_index;  /* a rank whose worker failed during this training; 0: none */
    char lost_cause[GP_TEXT_CAUSE];
    bool unclean;     /* compute was given work since its last reset */
    bool keeps_state; /* compute may keep the state of a training for the next generation of the lease */
} current_work;

/* Return whether a command of a training or prediction begins work, rather than continuing it. */
bool current_work_begins(gp_command_kind command);
/* Record that such a command was posted.
 *   peer, request  where replies go
 *   world          ranks of a training, or 0 */
void current_work_begin(current_work *work, gp_command_kind command, const gp_peer *peer,
                        const gp_envelope *request, uint32_t world);
void current_work_end(current_work *work);

/* Check that a message for compute fits what compute does. GP_ESTATE: it needs an idle worker, or an open
 * prediction. worker: index of this worker, for the error message. */
gp_status current_work_check(const current_work *work, uint32_t message, uint32_t worker, gp_error *err);
/* If a rank has failed, replace the error of a reply by that cause: the collective may have reported another one. */
void current_work_explain(const current_work *work, gp_reply *reply, uint32_t worker);

#endif
