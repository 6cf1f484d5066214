/* remote_listener.h -- the socket for clients on other hosts, which know the pool by its key. */
#ifndef GP_REMOTE_LISTENER_H
#define GP_REMOTE_LISTENER_H

#include <sys/stat.h>

#include "proto/channel/channel.h"
#include "scheduler/shell/shell.h"

typedef struct remote_counts {
    uint32_t links; /* connections now */
    uint64_t refused, cut;
} remote_counts;

typedef struct remote_listener {
    gp_zap *zap;         /* the list of allowed keys; NULL: no client may connect from another host */
    gp_channel *channel; /* NULL: not listening; tried again at retry_ms */
    char bound[GP_TEXT_ENDPOINT]; /* the address in use, or the one to try again */
    int64_t retry_ms, checked_ms; /* checked_ms: when the files of keys were last examined */
    struct stat key_seen;         /* of the pool's key file when it was read */
    uint64_t denied;      /* requests that the role of the key does not allow, or no remote client may make */
    remote_counts before; /* of channels that were closed */
    char trouble[GP_ERROR_MESSAGE_MAX]; /* the last logged failure to listen; "": none */
} remote_listener;

/* Listen if options->listen names an address.  Fails for a new pool; a scheduler that follows another one tries again. */
gp_status remote_listener_open(remote_listener *listener, const gp_shell_options *options, gp_error *err);
void remote_listener_close(remote_listener *listener, int drain_ms);
/* Return whether it listens; try to listen again if that is due. */
bool remote_listener_ready(remote_listener *listener, const gp_shell_options *options);
/* Return true every 250 ms: read the list of allowed keys if it has changed, and let the caller do what else is due. */
bool remote_listener_check_due(remote_listener *listener);
/* Return whether the file of the pool's key has changed since the listener read it. */
bool remote_listener_key_changed(const remote_listener *listener, const gp_shell_options *options);
/* Close all connections; those whose key is still allowed come back. */
void remote_listener_restart(remote_listener *listener);
/* Return the time in milliseconds until it has something to do; -1: nothing listens. */
int remote_listener_due_ms(remote_listener *listener);
remote_counts remote_listener_count(remote_listener *listener);

#endif
