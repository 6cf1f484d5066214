/* scheduler_link.h -- a worker's connection to the scheduler: messages, heartbeats, and finding the
 * next scheduler.
 *
 *   LINKED --end of file, or a newer scheduler calls--> ORPHAN --reply of a valid epoch--> LINKED
 */
#ifndef GP_SCHEDULER_LINK_H
#define GP_SCHEDULER_LINK_H

#include "common/base/system/timeout.h"
#include "proto/channel/channel.h"
#include "proto/local/control_socket.h"
#include "proto/local/paths.h"

/* Connection to the scheduler, and the timers for heartbeats and redialling. */
typedef struct scheduler_link {
    gp_channel *channel; /* NULL: there is no scheduler */
    /* the scheduler's control socket; end of file: the scheduler exited; -1: no scheduler */
    int control_socket;
    uint64_t epoch;         /* highest epoch of all schedulers seen */
    bool joined;            /* this scheduler sent worker_welcome */
    bool joined_before;     /* this scheduler or an earlier one sent it */
    bool called;            /* a new scheduler has connected to this worker: dial it */
    bool report_due;        /* worker_ready is sent once compute is reset */
    gp_timeout deadline;    /* linked: for worker_welcome; orphan: for finding a scheduler */
    int64_t redial_ms;      /* orphan: next attempt time */
    int64_t redial_wait_ms; /* orphan: delay between that attempt and the next one */
    int64_t beat_ms;        /* next heartbeat time */
    uint32_t beat_work;     /* work kind in the last heartbeat */
} scheduler_link;

/* Connect to the pool's scheduler and send hello.
 *   dial_ms  time limit for connecting
 *   join_ms  time limit for worker_welcome after that
 * GP_ESTALE: a scheduler of an older epoch answers. */
gp_status scheduler_link_open(scheduler_link *link, const gp_paths *paths, int dial_ms, int join_ms,
                              gp_error *err);

/* Close the connection, if there is one. Queued messages have linger_ms to be sent. */
void scheduler_link_close(scheduler_link *link, int linger_ms);

/* Close a failed connection and start looking for a scheduler. */
void scheduler_link_lose(scheduler_link *link);

/* Restart the time limit for finding a scheduler. */
void scheduler_link_extend(scheduler_link *link);

/* Connect to a scheduler if the next attempt is due. Return whether the connection succeeded. */
bool scheduler_link_redial(scheduler_link *link, const gp_paths *paths);

/* Send a message; failures are logged. GP_EPEER: there is no scheduler; the next one receives a
 * full report. */
gp_status scheduler_link_send(scheduler_link *link, const gp_envelope *envelope, const gp_message_type *type,
                              const void *message);

/* Return whether a heartbeat is due: periodically, and when the work kind changes. Schedules the
 * next one. */
bool scheduler_link_beat_due(scheduler_link *link, uint32_t work);

#endif
