/* Internal interface between the files of the shell.
 *
 *   shell.c               startup, poll loop, core actions
 *   shell_clients.c       control socket, messages from local clients
 *   shell_workers.c       messages from workers; spawning and reaping
 *   shell_send.c          outgoing messages, status
 *   shell_remote.c        clients on other hosts (shell_remote.h)
 *   remote_listener.c     listening socket for these clients
 *   shell_jobs.c, shell_job_messages.c
 *                         background jobs (shell_jobs.h) */
#ifndef GP_SHELL_PARTS_H
#define GP_SHELL_PARTS_H

#include <poll.h>

#include "proto/channel/channel.h"
#include "proto/local/control_socket.h"
#include "proto/message/messages.h"
#include "scheduler/core/core.h"
#include "scheduler/core/jobs.h"
#include "scheduler/shell/remote_listener.h"
#include "scheduler/shell/shell.h"
#include "scheduler/shell/totals.h"
#include "scheduler/process/supervise.h"

enum {
    SHELL_CLIENTS_MAX = 10000, /* local clients; fewer if descriptors are scarce */
    /* remote clients; they have separate entries, so that they cannot displace local ones */
    SHELL_REMOTE_MAX = 128,
    SHELL_CLIENTS_ALL = SHELL_CLIENTS_MAX + SHELL_REMOTE_MAX,
    /* local clients and workers, which connect to the same control socket */
    SHELL_LOCAL_MAX = SHELL_CLIENTS_MAX + 2 * GP_CORE_SLOTS_MAX,
    SHELL_PEERS_MAX = SHELL_LOCAL_MAX + SHELL_REMOTE_MAX,
    SHELL_PENDING_MAX = SHELL_CLIENTS_ALL + 256, /* in one step, each client can be dropped once */
    /* messages of a channel, and events of the control socket, in one iteration of the poll loop: a
     * client that sends faster than this process replies delays neither timers nor worker exits */
    SHELL_MESSAGES_AT_ONCE = 64
};
/* pseudo connection id of remote clients; no control socket connection has this id */
#define SHELL_REMOTE_CONNECTION UINT64_MAX

typedef struct shell_client {
    uint64_t control_socket; /* control socket connection; 0: this entry is free */
    gp_core_id session;
    pid_t pid;
    gp_peer peer;          /* bytes = 0 until the client sent hello on the channel */
    char key[GP_KEY_TEXT]; /* key of a remote client; "": local client */
    int64_t received_ms;   /* remote client: time of the last message */
} shell_client;

typedef struct shell_worker {
    gp_child child;
    gp_peer peer; /* bytes = 0 until the worker is ready */
    gp_slot slot; /* description from the worker */
    int64_t spawned_ns;
    uint64_t start_time; /* start time of an adopted worker; 0: unknown */
    int call;            /* open control socket connection to an adopted worker; -1: none */
    /* pidfd of the process for which the worker holds a lease, until that process claims the lease;
     * -1: none */
    int holder;
} shell_worker;

/* Client process that holds a lease. */
typedef struct shell_holder {
    uint64_t lease; /* 0: none */
    int pidfd;      /* -1: none yet */
} shell_holder;

/* Last client that the core refused. */
typedef struct shell_refusal {
    gp_core_id session;
    char reason[GP_ERROR_MESSAGE_MAX]; /* "": none */
} shell_refusal;

/* Outgoing message, one at a time. */
typedef union shell_message {
    gp_status_reply status;
    gp_lease_grant lease_grant;
    gp_lease_change lease_change;
    gp_lease_wait lease_wait;
    gp_lease_ended lease_ended;
    gp_worker_lost worker_lost;
    gp_worker_suspect worker_suspect;
    gp_error_reply error;
    gp_grant grant;
    gp_peer_lost peer_lost;
    gp_revoke revoke;
} shell_message;

typedef struct shell {
    const gp_shell_options *options;
    gp_core *core;
    gp_core_action *actions;
    gp_control_socket *control_socket;
    gp_channel *channel;
    int signals;
    int64_t started_ms, checked_ms; /* checked_ms: time of the last lock check */
    gp_owner owner;
    char devices[256]; /* for the pool record: as in --devices; "": auto */
    /* setting for gp_resources_assign(), also for the pool record; "": no resources */
    char resources[GP_TEXT_RESOURCES_SETTING];
    uint32_t recorded_workers; /* in the pool record */

    /* the settings that the core's reply to a resize confirms; NULL: no resize in this step */
    const gp_plan_request *resizing;
    bool holds, exit, followed; /* followed: a later scheduler has taken over the pool */
    /* the pool secrets are up to date: received from a client, or from an adopted worker */
    bool secrets_reported;
    shell_worker workers[GP_CORE_SLOTS_MAX];
    uint32_t clients_max, client_count; /* local clients */
    /* local clients at their control socket index, followed by remote clients */
    shell_client clients[SHELL_PEERS_MAX];
    gp_index sessions;                       /* index from session to clients; entry n is clients[n - 1] */
    shell_holder holders[GP_CORE_SLOTS_MAX]; /* by index of core->leases */
    remote_listener listener;
    shell_refusal refusal;
    struct shell_jobs *jobs;
    totals totals;
    gp_core_event pending[SHELL_PENDING_MAX]; /* events caused by executing actions */
    uint32_t pending_count;
    shell_message out; /* message that is sent next; large ones would not fit on the stack */
} shell;

/* Time for workers and job processes to exit after the owner of the pool has exited. */
enum { SHELL_OWNER_GRACE_MS = 250 };

/* ---- shell.c ---- */

/* Pass an event to the core, execute the resulting actions, and process all pending events. */
void shell_step(shell *s, const gp_core_event *event);

/* Queue an event, to be processed after the current step. */
void shell_pend(shell *s, const gp_core_event *event);

/* Process all pending events. */
void shell_flush(shell *s);

/* Keep the devices and resources of the pool, and write the pool record for the next scheduler. */
void shell_record(shell *s, const char *devices, const char *resources);

/* ---- shell_clients.c ---- */

/* Process pending events of the control socket. */
void shell_serve_control_socket(shell *s);

/* Disconnect the clients with a lease whose process has exited although their connection is still
 * open in a process that they forked. */
void shell_watch_clients(shell *s);

/* Close the descriptors of shell_watch_clients(). */
void shell_forget_holders(shell *s);

/* Process a message whose sender is not a worker. */
void shell_handle_client(shell *s, const gp_incoming *in);

/* Find a client by session. NULL: no such client. */
shell_client *shell_find_client(shell *s, const gp_core_id *session);

/* Disconnect a client and forget it. */
void shell_drop_client(shell *s, shell_client *client);

/* Register an admitted client under its session. */
void shell_keep_client(shell *s, shell_client *client, const shell_client *who);

/* Remove a client that has disconnected. */
void shell_forget_client(shell *s, shell_client *client);

/* Return whether the core has refused this session since the reason was cleared. */
bool shell_is_refused(const shell_refusal *refusal, const gp_core_id *session);

/* Create the session index before any client is admitted. False: out of memory. */
bool shell_sessions_init(shell *s);

/* Process a request from a registered client. event: epoch, session, correlation, lease and
 * generation are set. */
void shell_handle_request(shell *s, const gp_incoming *in, gp_core_event *event);

/* ---- shell_workers.c ---- */

/* Process a message from a worker. False: the sender is not a worker. */
bool shell_handle_worker(shell *s, const gp_incoming *in);

/* Spawn a worker and report the result to the core. */
void shell_spawn(shell *s, uint32_t slot, uint32_t incarnation);

/* Collect an exited worker, remove its sockets and report the exit to the core. */
void shell_reap(shell *s, uint32_t slot);

/* Report the surviving workers to the core and call them. Return whether there are any. */
bool shell_adopt(shell *s);

/* Close the descriptors that are kept only until an adopted worker reports and its lease is
 * claimed. */
void shell_hang_up(shell_worker *worker);

/* Report to the core when a process exits before it claims the lease that an adopted worker holds
 * for it. */
void shell_watch_holders(shell *s);

/* ---- shell_send.c ---- */

/* Send a message on the channel that connects to a peer. payload: NULL: none. */
gp_status shell_send(shell *s, const gp_peer *peer, const gp_envelope *envelope, const gp_message_type *type,
                     const void *message, const gp_payload *payload, gp_error *err);

/* Send a core action to a worker. Does nothing if the worker has no link. */
void shell_send_to_worker(shell *s, const gp_core_action *action);

/* Send a core action to a client. A client that cannot be reached is disconnected. */
void shell_send_to_client(shell *s, const gp_core_action *action);

/* Reply with the pool status. */
void shell_send_status(shell *s, const gp_peer *peer, const gp_envelope *to);

/* Reply with the devices of this host and the processes that use them. */
void shell_send_devices(shell *s, const gp_peer *peer, const gp_envelope *to);

/* Reply with a formatted error message, and log it. */
void shell_reply_error(shell *s, const gp_incoming *in, gp_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Build a reply envelope: same session, correlation and lease, with the epoch of this scheduler. */
gp_envelope shell_reply_envelope(const shell *s, const gp_envelope *to);

/* Decode the body of a request. False: it is malformed; an error reply was sent. */
bool shell_decode(shell *s, const gp_incoming *in, void *message);

/* Decode a hello and check the protocol version. False: an error reply was sent. */
bool shell_hello_read(shell *s, const gp_incoming *in, gp_hello *hello);
void shell_send_welcome(shell *s, const gp_incoming *in);

/* ---- shell_jobs.c, shell_job_messages.c ---- */

enum {
    /* more than the capacity, sweeps and keeper: discarded processes take some time to exit */
    SHELL_JOBS_PROCESSES_MAX = 2 * (GP_CORE_SLOTS_MAX + GP_JOBS_SWEEPS_MAX + 1),
    SHELL_JOBS_FDS_MAX = 1 + SHELL_JOBS_PROCESSES_MAX, /* journal and processes */
};

/* Open the journal and create the job state machine. An unavailable journal is not an error here;
 * requests about jobs report it. GP_ENOMEM: out of memory. */
gp_status shell_jobs_open(shell *s, gp_error *err);
void shell_jobs_close(shell *s);

/* Fill in the descriptors to poll. Return their number. */
uint32_t shell_jobs_poll(const shell *s, struct pollfd fds[SHELL_JOBS_FDS_MAX]);

/* Process journal reports, exited job processes and due timers. */
void shell_jobs_serve(shell *s, const struct pollfd *fds, uint32_t count);

/* Return whether the shutdown has to wait for jobs: processes that have not exited, or rows that
 * are not durable. */
bool shell_jobs_finishing(const shell *s);

/* Record how many workers each running job holds. */
void shell_jobs_note_workers(shell *s);

/* Return whether a process of this host belongs to a running job: to the session that the process
 * of the job leads. */
bool shell_jobs_has_process(const shell *s, pid_t pid);

/* Return the lease that a job's process holds. 0: none. */
uint64_t shell_jobs_lease(const shell *s, uint64_t job);

/* Process a message about jobs. False: the message has another subject. */
bool shell_jobs_handle(shell *s, const gp_incoming *in, const gp_core_id *session);

/* Remove all watches of a client. */
void shell_jobs_forget_client(shell *s, const gp_core_id *session);

#endif
