/* shell_parts.h -- inside the shell.
 *
 *   shell.c         opening, the loop, carrying actions out      shell_clients.c  door, what clients say
 *   shell_workers.c what workers say; spawning, reaping          shell_send.c     actions and status as messages
 *   shell_remote.c: clients on other hosts (shell_remote.h); remote_listener.c: their socket
 *   shell_jobs.c, shell_job_messages.c: background jobs (shell_jobs.h) */
#ifndef GP_SHELL_PARTS_H
#define GP_SHELL_PARTS_H

#include <poll.h>

#include "proto/channel/channel.h"
#include "proto/local/door.h"
#include "proto/message/messages.h"
#include "scheduler/core/core.h"
#include "scheduler/shell/remote_listener.h"
#include "scheduler/shell/shell.h"
#include "scheduler/process/supervise.h"

enum {
    SHELL_CLIENTS_MAX = 10000, /* of this host; fewer where there are not so many descriptors */
    SHELL_REMOTE_MAX = 128,    /* of others: they cannot take the places of ours */
    SHELL_CLIENTS_ALL = SHELL_CLIENTS_MAX + SHELL_REMOTE_MAX,
    SHELL_DOOR_MAX = SHELL_CLIENTS_MAX + 2 * GP_CORE_SLOTS_MAX, /* workers stand in it too */
    SHELL_PLACES = SHELL_DOOR_MAX + SHELL_REMOTE_MAX,
    SHELL_PENDING_MAX = SHELL_CLIENTS_ALL + 256 /* each client may be dropped in one step, once */
};
#define SHELL_REMOTE_DOOR UINT64_MAX /* of who came in over TCP: no connection has this id */

typedef struct shell_client {
    uint64_t door; /* its connection; 0 = this place is free */
    gp_core_id session;
    pid_t pid;
    gp_peer peer;          /* bytes = 0 until it said hello on the channel */
    char key[GP_KEY_TEXT]; /* of clients on other hosts; "" = of this one */
    int64_t heard_ms;      /* the same: when it last spoke */
} shell_client;

typedef struct shell_worker {
    gp_child child;
    gp_peer peer; /* bytes = 0 until it is ready */
    gp_slot slot; /* as it reported itself */
    int64_t spawned_ns;
    uint64_t start_time; /* of an adopted one; 0 = not known */
    int call;            /* the connection to its door on which an adopted one was called; -1 = none */
    int holder; /* pidfd of the process for whom it says that it holds a lease, until that has claimed it; -1 = none */
} shell_worker;

typedef struct shell {
    const gp_shell_options *options;
    gp_core *core;
    gp_core_action *actions;
    gp_door *door;
    gp_channel *channel;
    int signals, ready_fd;
    int64_t started_ms, checked_ms; /* checked_ms: when the lock was last looked at */
    bool holds, exit, followed;     /* followed: by a later scheduler */
    bool secrets_told; /* clients gave us new secrets, or an adopted worker those that the pool had */
    shell_worker workers[GP_CORE_SLOTS_MAX];
    uint32_t clients_max, client_count; /* of this host */
    shell_client clients[SHELL_PLACES]; /* of this host, each at its place in the door, then of others */
    gp_index sessions;                  /* of them, by session; entry n is clients[n - 1] */
    remote_listener listener;
    gp_core_id refused; /* the session that the core did not want, with why */
    char refusal[GP_ERROR_MESSAGE_MAX];
    struct shell_jobs *jobs;
    gp_core_event pending[SHELL_PENDING_MAX]; /* what carrying out actions led to */
    uint32_t pending_count;
    /* Large messages; one at a time, so they need no stack. */
    gp_status_reply status;
    gp_lease_grant lease_grant;
    gp_lease_change lease_change;
    gp_grant grant;
} shell;

/* ---- shell.c ---- */

/* One event, its actions, and what those lead to. */
void shell_step(shell *s, const gp_core_event *event);
void shell_pend(shell *s, const gp_core_event *event);
/* What is pending. */
void shell_flush(shell *s);

/* What a scheduler that follows this one must know. */
void shell_record(const shell *s, const char *devices);

/* ---- shell_clients.c ---- */

void shell_serve_door(shell *s);
/* A message whose sender is no worker. */
void shell_hear_client(shell *s, const gp_incoming *in);
shell_client *shell_find_client(shell *s, const gp_core_id *session);
void shell_drop_client(shell *s, shell_client *client);
/* It is let in: known by its session from now on. */
void shell_keep_client(shell *s, shell_client *client, const shell_client *who);
/* It has gone. */
void shell_forget_client(shell *s, shell_client *client);
/* Before anybody is let in; false: no memory. */
bool shell_sessions_init(shell *s);
/* A request of one that is in. */
void shell_hear_request(shell *s, const gp_incoming *in, gp_core_event *event);

/* ---- shell_workers.c ---- */

/* Whether the message was a worker's. */
bool shell_hear_worker(shell *s, const gp_incoming *in);
void shell_spawn(shell *s, uint32_t slot, uint32_t incarnation);
void shell_reap(shell *s, uint32_t slot);
/* The core learns of the survivors, and they are called; whether there are any. */
bool shell_adopt(shell *s);
void shell_hang_up(shell_worker *worker);
/* Tell the core of processes that died before they claimed what adopted workers hold for them. */
void shell_watch_holders(shell *s);

/* ---- shell_send.c ---- */

/* The channel that a peer is on. */
gp_channel *shell_link(shell *s, const gp_peer *peer);

void shell_send_to_worker(shell *s, const gp_core_action *action);
void shell_send_to_client(shell *s, const gp_core_action *action);
void shell_send_status(shell *s, const gp_peer *peer, const gp_envelope *to);
void shell_send_devices(shell *s, const gp_peer *peer, const gp_envelope *to);
void shell_reply_error(shell *s, const gp_incoming *in, gp_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same envelope back, with our epoch. */
gp_envelope shell_reply_envelope(const shell *s, const gp_envelope *to);
/* A hello that is understood, of a protocol that we speak; else it is answered with what is wrong, and false. */
bool shell_hello_read(shell *s, const gp_incoming *in, gp_hello *hello);
void shell_send_welcome(shell *s, const gp_incoming *in);

/* ---- shell_jobs.c, shell_job_messages.c ---- */

enum { SHELL_JOBS_FDS_MAX = 1 + 2 * GP_CORE_SLOTS_MAX };

/* GP_ENOMEM only: a journal that cannot be opened is told to those who ask for jobs. */
gp_status shell_jobs_open(shell *s, gp_error *err);
void shell_jobs_close(shell *s);
/* What to poll for; returns how many. */
uint32_t shell_jobs_poll(const shell *s, struct pollfd fds[SHELL_JOBS_FDS_MAX]);
void shell_jobs_serve(shell *s, const struct pollfd *fds, uint32_t count);
int64_t shell_jobs_due(const shell *s);
/* Whether something of a job has yet to end or to be written. */
bool shell_jobs_active(const shell *s);
/* How many workers each running job holds. */
void shell_jobs_note_workers(shell *s);
/* The lease that the job's process holds; 0 = none. */
uint64_t shell_jobs_lease(const shell *s, uint64_t job);
/* Whether the message was about jobs. */
bool shell_jobs_hear(shell *s, const gp_incoming *in, const gp_core_id *session);
void shell_jobs_forget_client(shell *s, const gp_core_id *session);

#endif
