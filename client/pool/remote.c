#include "client/pool/remote.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/profile.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/timeout.h"
#include "proto/channel/endpoint.h"

enum {
    SILENCE_MS = 2000,
    HELLO_MS = 1500,
    RETRY_MS = 250,
    REUNION_MS = 13000,
    CLOSED_MS = 3000 /* for a link that closes before the handshake */
};

/* ---- profiles ---- */

/* Read the profile of a pool. *there is set to whether it exists. GP_EINVAL: the profile describes
 * a cluster. Other errors as for gp_profile_read(). */
static gp_status profile_find(gp_profile *out, const char *name, bool *there, gp_error *err)
{
    gp_error why;
    gp_status status;

    *there = false;
    if (name == NULL)
        return GP_OK;
    status = gp_profile_read(out, name, &why);
    if (status == GP_ENOENT)
        return GP_OK;
    if (status != GP_OK)
        return gp_fail(err, status, "%s", why.message);
    *there = true;
    return out->type == GP_PROFILE_POOL
               ? GP_OK
               : gp_fail(err, GP_EINVAL,
                         "'%s' is a profile of type %s, not a pool; use gradpool submit --profile %s", name,
                         gp_profile_types[out->type], name);
}

/* Resolve a file name from a profile: absolute, relative to the home directory (~/), or relative to
 * the folder of the profile. An empty name stays empty. */
static gp_status file_resolve(char out[PATH_MAX], const gp_profile *profile, const char *value, gp_error *err)
{
    const char *home = getenv("HOME"), *slash = strrchr(profile->path, '/');
    int length;

    if (value[0] == '/' || value[0] == '\0' || slash == NULL)
        length = snprintf(out, PATH_MAX, "%s", value);
    else if (strncmp(value, "~/", 2) == 0 && home != NULL)
        length = snprintf(out, PATH_MAX, "%s/%s", home, value + 2);
    else
        length = snprintf(out, PATH_MAX, "%.*s/%s", (int)(slash - profile->path), profile->path, value);
    return length >= 0 && length < PATH_MAX ? GP_OK
                                            : gp_fail(err, GP_ELIMIT, "the path %.60s... is too long", value);
}

/* ---- finding ---- */

/* Return the first nonempty value: the option, the environment variable, or the fallback. */
static const char *chosen(const char *option, const char *variable, const char *fallback)
{
    const char *value = option != NULL && option[0] != '\0' ? option : getenv(variable);

    return value != NULL && value[0] != '\0' ? value : fallback;
}

/* Read the key files that the options, the environment or the profile name. */
static gp_status keys_read(struct pool_remote *remote, const gp_pool_options *options,
                           const gp_profile *profile, gp_error *err)
{
    char server_file[PATH_MAX], own_file[PATH_MAX];
    gp_status status = file_resolve(server_file, profile, profile->server_key_file, err);

    if (status == GP_OK)
        status = file_resolve(own_file, profile, profile->key_file, err);
    if (status != GP_OK)
        return status;
    const char *server = chosen(options->server_key_file, "GRADPOOL_SERVER_KEY_FILE", server_file);
    const char *own = chosen(options->key_file, "GRADPOOL_KEY_FILE", own_file);

    if (server[0] == '\0')
        return gp_fail(err, GP_EINVAL,
                       "the pool at %s cannot be authenticated without its public key; give "
                       "--server-key-file FILE (`gradpool key show` on its host prints the key)",
                       remote->endpoint);
    if (own[0] == '\0')
        return gp_fail(err, GP_EINVAL,
                       "the pool at %s accepts only clients with a registered key; give yours with "
                       "--key-file FILE (`gradpool key new FILE` creates one)",
                       remote->endpoint);
    status = gp_key_read_public(remote->server_key, server, err);
    return status == GP_OK ? gp_key_read(&remote->own, own, err) : status;
}

gp_status pool_remote_find(struct pool_remote **out, const gp_pool_options *options, const char *name,
                           gp_error *err)
{
    gp_profile *profile = gp_calloc(1, sizeof(*profile));
    struct pool_remote *remote = gp_calloc(1, sizeof(*remote));
    bool found = name != NULL && gp_endpoint_is_remote(name);
    gp_status status = GP_OK;

    *out = NULL;
    if (profile == NULL || remote == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a pool handle");
    else if (!found)
        status = profile_find(profile, name, &found, err);
    if (status == GP_OK && found) {
        const char *endpoint = profile->connect[0] != '\0' ? profile->connect : name;

        status = gp_endpoint_check(endpoint, false, err);
        if (status == GP_OK) {
            snprintf(remote->endpoint, sizeof(remote->endpoint), "%s", endpoint);
            status = keys_read(remote, options, profile, err);
        }
    }
    if (status == GP_OK && found) {
        *out = remote;
        remote = NULL;
    }
    pool_remote_free(remote);
    gp_free(profile);
    return status;
}

void pool_remote_free(struct pool_remote *remote)
{
    if (remote == NULL)
        return;
    gp_key_wipe(&remote->own);
    gp_free(remote);
}

/* ---- the link ---- */

static gp_status say_hello(gp_pool *pool, int timeout_ms, gp_error *err)
{
    gp_hello hello = pool_hello();
    gp_welcome welcome;
    gp_status status = pool_ask(pool, &gp_msg_hello, &hello, &gp_msg_welcome, &welcome, timeout_ms, err);

    if (status == GP_OK) {
        pool->scheduler_pid = welcome.pid;
        snprintf(pool->paths.pool, sizeof(pool->paths.pool), "%.32s", welcome.pool);
    }
    return status != GP_EBUSY
               ? status
               : gp_fail(err, GP_EPEER, "the pool at %s has just shut down", pool->remote->endpoint);
}

/* Try once to connect with a new channel, which replaces the old one, and say hello. *unproved: see
 * gp_channel_options. */
static gp_status dial_once(gp_pool *pool, gp_timeout timeout, bool *unproved, gp_error *err)
{
    struct pool_remote *remote = pool->remote;
    gp_link_keys keys = { .own = &remote->own, .server_key = remote->server_key };
    gp_channel_options link = {
        .security = GP_SECURITY_CURVE,
        .curve = &keys,
        .heartbeat = true,
        .unproved = unproved,
    };
    gp_channel *made = NULL;
    gp_status status = gp_channel_connect(&made, remote->endpoint, &link, (int)gp_timeout_left(timeout), err);

    if (status != GP_OK)
        return status;
    gp_channel_close(pool->scheduler, 0);
    pool->scheduler = made;
    return say_hello(pool, HELLO_MS, err);
}

gp_status pool_remote_dial(gp_pool *pool, int timeout_ms, gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(timeout_ms);
    bool unproved;
    int64_t began = gp_now_ms();
    gp_error why;
    gp_status status;

    /* A scheduler that accepts the connection but does not reply may have failed; its successor
     * uses the same endpoint, so retry. A scheduler that closes the connection before the handshake
     * may have too many connections: retry for CLOSED_MS. It also closes the connection of a client
     * with a wrong server key, which must learn that soon. */
    pool->dialling = true;
    for (;;) {
        status = dial_once(pool, timeout, &unproved, &why);
        bool closed = status == GP_EPERM && unproved;

        if ((status != GP_ETIMEDOUT && !closed) || (closed && gp_now_ms() - began >= CLOSED_MS) ||
            gp_timeout_left(timeout) == 0)
            break;
        if (closed)
            gp_sleep_ms(RETRY_MS);
    }
    pool->dialling = false;
    pool->remote->received_ms = gp_now_ms();
    if (status == GP_OK)
        return GP_OK;
    if (status == GP_ETIMEDOUT)
        return gp_fail(err, GP_EPEER, "%s accepts connections but does not reply", pool->remote->endpoint);
    return status == GP_EPEER
               ? gp_fail(err, GP_ENOPOOL, "%s: no pool listens there, or a firewall blocks the port",
                         why.message)
               : gp_fail(err, status, "%s", why.message);
}

bool pool_remote_stale(gp_pool *pool)
{
    return pool->remote != NULL && !pool->dialling &&
           (gp_now_ms() - pool->remote->received_ms > SILENCE_MS || gp_channel_broke(pool->scheduler));
}

bool pool_remote_forgotten(const gp_pool *pool, const pool_message *message)
{
    gp_error_reply reply;

    return pool->remote != NULL && !pool->dialling && message->from == POOL_SCHEDULER &&
           message->in.type == &gp_msg_error_reply &&
           gp_incoming_decode(&message->in, &reply, NULL) == GP_OK && reply.code == GP_EPEER;
}

/* Try the existing link first: it reconnects by itself, and the remote scheduler is often only
 * slow. */
gp_status pool_remote_try(gp_pool *pool, gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(REUNION_MS);
    bool unproved = false;
    gp_error why = { .message = "" };
    gp_status status;

    pool->dialling = true;
    status = say_hello(pool, HELLO_MS, &why);

    /* The server proved its identity earlier. If it does not now, a network that breaks connections
     * is the likely cause: retry. */
    while (status != GP_OK && (status != GP_EPERM || unproved) && status != GP_EVERSION &&
           gp_timeout_left(timeout) > 0) {
        status = dial_once(pool, timeout, &unproved, &why);
        if (status != GP_OK && (status != GP_EPERM || unproved))
            poll(NULL, 0, RETRY_MS);
    }

    /* Possibly a new server took over the link. Connect again, so that the error message comes from
     * the handshake. */
    if (status == GP_EPERM && !unproved) {
        timeout = gp_timeout_in(HELLO_MS);
        status = dial_once(pool, timeout, &unproved, &why);
    }
    pool->dialling = false;
    pool->remote->received_ms = gp_now_ms();
    if (status != GP_OK)
        return gp_fail(err, status == GP_EPERM ? GP_EPERM : GP_EPEER, "lost the connection to %s: %.200s",
                       pool->remote->endpoint, why.message);
    pool->reunions++;
    return GP_OK;
}

gp_status pool_needs_host(const gp_pool *pool, const char *what, gp_error *err)
{
    if (pool->remote == NULL)
        return GP_OK;
    return gp_fail(err, GP_EUNSUPPORTED,
                   "%s shares memory with the workers, so it must run on the host of the pool (%s is another "
                   "host); `gradpool submit -- ...` runs it there",
                   what, pool->remote->endpoint);
}

/* ---- queries that replace local files and drivers ---- */

/* Send a request whose reply has one payload. Release *out with pool_message_close(). */
static gp_status ask_payload(gp_pool *pool, const gp_message_type *type, const void *message,
                             const gp_message_type *reply_type, pool_message *out, gp_error *err)
{
    gp_status status = pool_request(pool, type, message, reply_type, out, POOL_ANSWER_MS, err);

    if (status != GP_OK || out->in.payload_count == 1)
        return status;
    pool_message_close(out);
    return gp_fail(err, GP_EPROTO, "malformed reply to '%s' from the scheduler: no payload", type->name);
}

gp_status pool_job_read(gp_pool *pool, uint64_t job, gp_job_file file, uint32_t worker, uint64_t offset,
                        pool_piece *out, gp_error *err)
{
    gp_job_read ask = {
        .job = job, .file = file, .worker = worker, .offset = offset, .bytes = GP_JOB_PIECE_BYTES_MAX
    };
    pool_message in;
    gp_status status = ask_payload(pool, &gp_msg_job_read, &ask, &gp_msg_job_piece, &in, err);

    if (status != GP_OK)
        return status;
    status = gp_incoming_decode(&in.in, &out->at, err);
    out->bytes = in.in.payloads[0].bytes;
    if (status == GP_OK && out->bytes > GP_JOB_PIECE_BYTES_MAX)
        status = gp_fail(err, GP_EPROTO, "malformed reply from the pool: %zu bytes, requested %u", out->bytes,
                         GP_JOB_PIECE_BYTES_MAX);
    if (status == GP_OK) {
        memcpy(out->text, in.in.payloads[0].data, out->bytes);
        out->text[out->bytes] = '\0';
    }
    pool_message_close(&in);
    return status;
}

gp_status pool_devices(gp_pool *pool, gp_device_list *out, uint32_t *cores, gp_error *err)
{
    gp_devices_reply reply;
    pool_message in;
    gp_status status =
        ask_payload(pool, &gp_msg_devices_get, &(gp_devices_get){ 0 }, &gp_msg_devices_reply, &in, err);

    if (status != GP_OK)
        return status;
    status = gp_incoming_decode(&in.in, &reply, err);
    if (status == GP_OK)
        status = gp_device_list_read(out, (const char *)in.in.payloads[0].data, in.in.payloads[0].bytes, err);
    if (status == GP_OK)
        *cores = reply.cores;
    pool_message_close(&in);
    return status;
}
