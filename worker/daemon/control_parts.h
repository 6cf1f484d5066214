/* control_parts.h -- what control.c, control_lease.c and control_client.c share; nobody else includes it. */
#ifndef GP_CONTROL_PARTS_H
#define GP_CONTROL_PARTS_H

#include "common/base/system/timeout.h"
#include "proto/channel/channel.h"
#include "proto/local/door.h"
#include "proto/message/messages.h"
#include "worker/daemon/control.h"
#include "worker/process/mailbox.h"
#include "worker/process/rendezvous.h"
#include "worker/daemon/run.h"
#include "worker/exec/runner_link.h"
#include "worker/task/task_state.h"
#include "worker/train/trainer.h"

enum {
    TASK_OFFERS_MAX = 4,
    CONTROL_ASKED_MS = 700, /* for compute to end when we are told to; all is over within 1 s */
};

/* What compute was last asked for, as control knows it; IDLE again when the last answer was sent. */
typedef enum control_work {
    WORK_IDLE,
    WORK_TRAINING,
    WORK_PREDICTING,
    WORK_TASKS,
    WORK_PREPARING
} control_work;

/* Descriptors of a link that came through the door and wait for its task_open. */
typedef struct task_offer {
    uint64_t door_id;  /* of the connection; 0 = this place is free */
    int segment, bell; /* -1 = has not come */
} task_offer;

typedef struct control {
    const gp_control_options *options;
    gp_slot slot;
    uint64_t epoch; /* the largest of a scheduler that was seen */
    bool joined;    /* worker_welcome came */
    bool warmed;    /* once in a life */

    gp_channel *scheduler, *clients;
    int scheduler_door, signals;

    /* Without a scheduler: scheduler == NULL (control_orphan.c). */
    int64_t redial_ms, redial_wait_ms; /* the next try, and how long to wait after it */
    gp_timeout orphan;                 /* without a scheduler and without a lease */
    bool called;                       /* a new scheduler answers: dial it */
    bool reporting;                    /* worker_ready is to be sent when compute is reset */
    int client_pidfd;                  /* of the lease's holder; -1 = not known */
    gp_door *door;
    gp_mailbox *mailbox;
    gp_train_control train;
    gp_run *run;

    /* The lease that is served; 0 = none. */
    uint64_t lease;
    uint32_t generation;
    gp_grant grant;
    gp_rendezvous *group;
    gp_rendezvous *older; /* of an earlier generation, while a task is still in it; NULL = none */
    bool used;            /* compute was given work since it was last reset */
    bool holds;           /* compute may hold the state of a training of this lease */
    bool resetting;       /* RESET is on its way; until it is answered nothing new is begun */
    bool granting;        /* a grant waits for compute: next_* */
    bool acking;          /* grant_ack is to be sent */
    bool revoking;        /* revoked is to be sent, once compute is reset */
    gp_envelope next_envelope, grant_envelope, revoke_envelope; /* of grants and revoke, for their answers */
    gp_grant next_grant;

    /* Its client. */
    bool attached;
    gp_peer client;
    uint8_t client_session[16];
    gp_runner_link *runner; /* of its commands; NULL = none */

    /* The link that its tasks come through. */
    task_offer offers[TASK_OFFERS_MAX];
    gp_seat *seat; /* NULL = none; compute is in it until it says that it has left */
    uint64_t seat_door;
    bool recycle; /* code or values of a lease are in this process: it must not serve another */

    /* Weights (control_weights.c). */
    uint64_t weights_door; /* the client's connection; 0: none */
    int weights_fd;        /* sent for the next train_begin or predict_begin; -1: none */

    control_work work;
    gp_peer work_peer;
    gp_envelope work_envelope;
    uint32_t work_world; /* ranks of the training: the first so many members */
    uint32_t lost_index; /* a member that died during this training; 0 = none */
    char lost_cause[GP_TEXT_CAUSE];
    uint64_t unheard; /* messages that its client did not get: it is gone, or reads nothing */
    bool blocked;     /* something could not be sent: try again soon */
    gp_news_message news;

    bool ending;
    int exit_code;
    int64_t end_ms; /* when ending: give up waiting for compute */
    int64_t beat_ms;
    gp_timeout join;      /* for the scheduler to reply to hello */
    uint32_t beaten_work; /* with the last beat */
} control;

/* control.c */
void control_join_begin(control *c, int timeout_ms); /* a scheduler was dialled */
void control_end(control *c, int exit_code, int within_ms, const char *why);
void control_doors(control *c); /* all that waits at the door */
gp_status control_tell(control *c, const gp_envelope *envelope, const gp_message_type *type,
                       const void *message);

/* control_lease.c: what the scheduler says */
void control_scheduler(control *c, gp_incoming *in);
void control_reset_done(control *c);
void control_answer(control *c); /* send what is due and could not be sent before */
void control_reset(
    control *c); /* stop what compute and commands do; the lease is let go of then, perhaps at once */
void control_reset_go(control *c); /* go on with it: something has stopped */

/* Say to the scheduler what we are and hold, now or when compute is reset. */
void control_report(control *c);

/* control_orphan.c: the link to the scheduler, and life without one */
gp_status control_dial(control *c, int timeout_ms, gp_error *err);
void control_orphaned(control *c); /* the link is gone, or of no use any more */
void control_orphan_serve(control *c);
int64_t control_orphan_due(const control *c);
void control_called(control *c, const gp_door_event *knock); /* by a new scheduler */

/* control_run.c: commands */
gp_status control_run_open(control *c, gp_error *err);
void control_run_fetch(control *c, uint64_t id,
                       const gp_door_request *request); /* id: of the door's connection */
void control_run_end(control *c);                       /* kill all; watch sees it gone */
void control_run_watch(control *c);

/* control_client.c: what clients say, and what they are told */
void control_client(control *c, gp_incoming *in);
void control_outbound(control *c);
bool control_token_equal(const uint8_t *a, const uint8_t *b);

/* control_weights.c: descriptors of weights */
bool control_weights_request(control *c, const gp_door_event *event); /* false: another kind of request */
void control_weights_gone(control *c, uint64_t door_id);              /* a connection at the door ended */
int control_weights_take(control *c);                              /* the caller closes it; -1: none came */
gp_status control_weights_send(control *c, int fd, gp_error *err); /* GP_EBUSY: try again later */
void control_weights_drop(control *c);                             /* the lease ends */

/* control_tasks.c: the link of tasks */
bool control_tasks_request(control *c, const gp_door_event *event); /* false: not ours */
void control_tasks_gone(control *c, uint64_t door_id);              /* a connection at the door ended */
gp_status control_tasks_open(control *c, const gp_task_open *open, gp_error *err);
void control_tasks_regroup(control *c); /* the lease has another generation */
void control_tasks_cancel(control *c, const gp_task_stop *stop);
void control_tasks_lost(control *c, uint32_t index); /* a member died */
void control_tasks_stop(control *c);                 /* compute is to leave */
/* Return whether a call runs although its client has exited and the lease is revoked. */
bool control_tasks_abandoned(const control *c);
void control_tasks_left(control *c); /* it has */
void control_tasks_drop(control *c); /* the lease ends; compute is idle */

#endif
