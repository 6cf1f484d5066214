/* current_work.h -- the work that the control thread has given to the compute thread, and the
 * client that gets the replies. */
#ifndef GP_CURRENT_WORK_H
#define GP_CURRENT_WORK_H

#include "worker/process/mailbox.h"

/* Kind of work that compute does. */
typedef enum work_kind { WORK_IDLE, WORK_TRAINING, WORK_PREDICTING, WORK_TASKS, WORK_PREPARING } work_kind;

/* The work that compute does, and the state that it leaves behind. */
typedef struct current_work {
    work_kind kind;       /* WORK_IDLE: the last reply was sent */
    gp_peer peer;         /* client that receives the replies */
    gp_envelope envelope; /* envelope template for the replies */
    uint32_t world;       /* number of ranks in the training: the first members of the grant */
    uint32_t lost_index;  /* a rank whose worker failed during this training; 0: none */
    char lost_cause[GP_TEXT_CAUSE];
    bool unclean;     /* compute has received work since the last reset */
    bool keeps_state; /* compute may keep training state for the next lease generation */
} current_work;

/* Return whether a command starts a training, prediction or preparation, rather than continuing
 * one. */
bool current_work_begins(gp_command_kind command);

/* Record a command that was posted to compute.
 *   peer, request  destination of the replies
 *   world          number of ranks in a training, or 0 */
void current_work_begin(current_work *work, gp_command_kind command, const gp_peer *peer,
                        const gp_envelope *request, uint32_t world);
void current_work_end(current_work *work);

/* Check that the current work allows this client message. GP_ESTATE: the message needs an idle
 * worker, or an open prediction. `worker` is the worker index for the error message. */
gp_status current_work_check(const current_work *work, uint32_t message, uint32_t worker, gp_error *err);

/* Replace the error in a reply by the peer failure that caused it, if a peer has failed. The
 * collective operation may have reported a secondary error. */
void current_work_explain(const current_work *work, gp_reply *reply, uint32_t worker);

#endif
