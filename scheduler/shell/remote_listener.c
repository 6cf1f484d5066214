/* Listening socket for clients on other hosts. */
#include "scheduler/shell/remote_listener.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory/secret.h"
#include "common/base/text/log.h"

enum {
    KEY_CHECK_MS = 250, /* interval between checks of the key files */
    LISTEN_RETRY_MS = 250,
};

/* Open the list of allowed keys, unless it is open. Then listen on `endpoint` with the pool key,
 * and store the actual address in `bound`. */
static gp_status listen_at(remote_listener *listener, const gp_paths *paths, const char *endpoint,
                           gp_error *err)
{
    const char *key_path = paths->server_key;
    gp_key_pair own;
    gp_link_keys keys = { .own = &own };
    gp_channel_options link = { .security = GP_SECURITY_CURVE, .curve = &keys, .heartbeat = true };
    gp_status status = listener->zap == NULL ? gp_zap_open(&listener->zap, paths->allowed, err) : GP_OK;

    if (status != GP_OK)
        return status;
    keys.zap = listener->zap;
    if (stat(key_path, &listener->key_seen) != 0)
        memset(&listener->key_seen, 0, sizeof(listener->key_seen));
    status = gp_key_read(&own, key_path, err);
    if (status == GP_OK)
        status = gp_channel_listen(&listener->channel, endpoint, &link, listener->bound, err);
    gp_key_wipe(&own);
    if (status == GP_OK)
        gp_log_event(GP_LOG_INFO, "listening",
                     GP_LOG_WITH({ "at", .text = listener->bound },
                                 { "keys", .number = gp_zap_get_stats(listener->zap).allowed }),
                     "listening for other hosts");
    return status;
}

/* Log why listening failed, once per reason, and schedule a retry. */
static void listen_failed(remote_listener *listener, const gp_error *why)
{
    if (strcmp(why->message, listener->trouble) != 0)
        gp_log(GP_LOG_ERROR, "listen-failed", "%s; retrying", why->message);
    snprintf(listener->trouble, sizeof(listener->trouble), "%s", why->message);
    listener->retry_ms = gp_now_ms() + LISTEN_RETRY_MS;
}

gp_status remote_listener_open(remote_listener *listener, const gp_shell_options *options, gp_error *err)
{
    gp_error why;
    gp_status status;

    if (options->listen == NULL)
        return GP_OK;
    gp_secret_guard(); /* a core dump would contain the pool key */
    status = listen_at(listener, options->paths, options->listen, &why);
    /* not GP_EBUSY, which would mean that another scheduler has the pool */
    if (status != GP_OK && !options->follows)
        return gp_fail(err, status == GP_EBUSY ? GP_EIO : status, "%s", why.message);
    /* The pool already exists. A temporary failure to listen must not end it. */
    if (status != GP_OK) {
        snprintf(listener->bound, sizeof(listener->bound), "%s", options->listen);
        listen_failed(listener, &why);
    }
    return GP_OK;
}

void remote_listener_close(remote_listener *listener, int drain_ms)
{
    gp_channel_close(listener->channel, drain_ms);
    listener->channel = NULL;
    gp_zap_close(listener->zap);
    listener->zap = NULL;
}

bool remote_listener_ready(remote_listener *listener, const gp_shell_options *options)
{
    char endpoint[GP_TEXT_ENDPOINT];
    gp_error err;

    if (listener->bound[0] == '\0' || listener->channel != NULL)
        return listener->channel != NULL;
    if (gp_now_ms() < listener->retry_ms)
        return false;
    memcpy(endpoint, listener->bound, sizeof(endpoint)); /* listen_at() overwrites `bound` */
    if (listen_at(listener, options->paths, endpoint, &err) == GP_OK)
        listener->trouble[0] = '\0';
    else
        listen_failed(listener, &err);
    return listener->channel != NULL;
}

bool remote_listener_check_due(remote_listener *listener)
{
    if (gp_now_ms() - listener->checked_ms < KEY_CHECK_MS)
        return false;
    listener->checked_ms = gp_now_ms();
    gp_zap_get_stats(listener->zap); /* reloads the list of allowed keys if it changed */
    return true;
}

bool remote_listener_key_changed(const remote_listener *listener, const gp_shell_options *options)
{
    const struct stat *seen = &listener->key_seen;
    struct stat now;

    return stat(options->paths->server_key, &now) == 0 &&
           (now.st_ino != seen->st_ino || now.st_mtim.tv_sec != seen->st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != seen->st_mtim.tv_nsec);
}

static void count_in(remote_counts *counts, const gp_connection_guard_stats *gate)
{
    counts->refused += gate->failed + gate->over_rate;
    for (int i = 0; i < GP_CUTS; i++)
        counts->cut += gate->cut[i];
}

void remote_listener_restart(remote_listener *listener)
{
    gp_connection_guard_stats gate = gp_channel_get_guard_stats(listener->channel);

    gp_log(GP_LOG_INFO, "pool-key-changed", "the pool's key changed; closing the connections of other hosts");
    count_in(&listener->before, &gate);
    gp_channel_close(listener->channel, 0);
    listener->channel = NULL;
    listener->retry_ms = gp_now_ms();
}

int remote_listener_due_ms(remote_listener *listener)
{
    int due_ms;

    if (listener->bound[0] == '\0')
        return -1;
    if (listener->channel == NULL)
        return LISTEN_RETRY_MS;
    if (gp_channel_pending(listener->channel))
        return 0;
    due_ms = gp_channel_poll_timeout_ms(listener->channel);
    return due_ms >= 0 && due_ms < KEY_CHECK_MS ? due_ms : KEY_CHECK_MS;
}

remote_counts remote_listener_count(remote_listener *listener)
{
    remote_counts counts = listener->before;

    counts.refused += listener->denied;
    if (listener->zap != NULL) {
        gp_zap_stats zap = gp_zap_get_stats(listener->zap);

        counts.refused += zap.refused + zap.muted;
    }
    if (listener->channel != NULL) {
        gp_connection_guard_stats gate = gp_channel_get_guard_stats(listener->channel);

        counts.links = gate.links;
        count_in(&counts, &gate);
    }
    return counts;
}
