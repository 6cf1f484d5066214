/* Listening socket for clients on other hosts, which authenticate the pool by its key. */
#ifndef GP_REMOTE_LISTENER_H
#define GP_REMOTE_LISTENER_H

#include <sys/stat.h>

#include "proto/channel/channel.h"
#include "scheduler/shell/shell.h"

typedef struct remote_counts {
    uint32_t links; /* current connections */
    uint64_t refused, cut;
} remote_counts;

typedef struct remote_listener {
    gp_zap *zap;                  /* list of allowed keys; NULL: not open */
    gp_channel *channel;          /* NULL: not listening; retried at retry_ms */
    char bound[GP_TEXT_ENDPOINT]; /* address in use, or the one to retry; "": do not listen */
    int64_t retry_ms, checked_ms; /* checked_ms: time of the last check of the key files */
    struct stat key_seen;         /* state of the pool key file when it was read */
    /* refused requests: not allowed for the key's role, or for any remote client */
    uint64_t denied;
    remote_counts before;               /* counts from channels that were closed */
    char trouble[GP_ERROR_MESSAGE_MAX]; /* last logged failure to listen; "": none */
} remote_listener;

/* Listen if options->listen names an address. A failure is an error for a new pool; a scheduler
 * that follows another one retries instead. */
gp_status remote_listener_open(remote_listener *listener, const gp_shell_options *options, gp_error *err);

/* Stop listening. Wait up to drain_ms for queued messages to be sent. */
void remote_listener_close(remote_listener *listener, int drain_ms);

/* Return whether the socket listens. If a retry is due, try to listen again. */
bool remote_listener_ready(remote_listener *listener, const gp_shell_options *options);

/* Return true every 250 ms, for periodic work of the caller. Also reload the list of allowed keys
 * if it changed. */
bool remote_listener_check_due(remote_listener *listener);

/* Return whether the pool key file changed since the listener read it. */
bool remote_listener_key_changed(const remote_listener *listener, const gp_shell_options *options);

/* Close all connections. Clients whose key is still allowed reconnect. */
void remote_listener_restart(remote_listener *listener);

/* Return the time until the listener needs attention, in ms; -1: it does not listen. */
int remote_listener_due_ms(remote_listener *listener);

/* Return the current connections and the counts since the start. */
remote_counts remote_listener_count(remote_listener *listener);

#endif
