/* pool_dial.c: connect to the scheduler, and reconnect after a scheduler failure.
 *
 *   CONNECTED --end of file on the control socket--> LOST
 *   LOST --find or start a scheduler, hello, claim the lease--> CONNECTED
 *
 * Workers continue without a scheduler meanwhile. After an orderly shutdown there is no reconnect:
 * the scheduler has removed the pool record. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/pool/remote.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/system/timeout.h"
#include "common/base/memory/secret.h"
#include "proto/task/task_wire.h"

enum { RETRY_MS = 10 };

static const gp_channel_options scheduler_link = { .security = GP_SECURITY_NONE };

bool pool_is_gone(const gp_pool *pool)
{
    return pool->remote == NULL && gp_control_socket_gone(pool->control_socket);
}

gp_status pool_scheduler_gone(const gp_pool *pool, gp_error *err)
{
    return gp_fail(err, GP_EPEER,
                   "the scheduler of pool %s (pid %" PRIu32
                   ") exited; its log is %s; the next command starts a new one",
                   pool->paths.pool, pool->scheduler_pid, pool->paths.scheduler_log);
}

/* ---- connecting ---- */

/* Replace the secrets of a running pool. They travel as a descriptor, not as a message. */
static gp_status send_secrets(gp_pool *pool, const char *names, int timeout_ms, gp_error *err)
{
    gp_control_socket_request request = { .what = GP_CONTROL_SOCKET_SECRETS }, answer = { .what = 0 };
    int secrets;
    gp_status status = gp_secrets_new(&secrets, err);

    if (status != GP_OK)
        return status;
    status = gp_secrets_set(secrets, names, err);
    if (status == GP_OK)
        status = gp_control_socket_send_fd(pool->control_socket, &request, secrets, err);
    close(secrets);
    if (status == GP_OK)
        status = gp_control_socket_receive_fd(pool->control_socket, &answer, NULL, timeout_ms, err);
    if (status == GP_OK && (answer.what != GP_CONTROL_SOCKET_SECRETS || answer.lease != GP_OK))
        status = gp_fail(err, GP_EPROTO, "the scheduler refused the secrets; its log is %s",
                         pool->paths.scheduler_log);
    return status;
}

/* Try once to connect. On failure the caller closes everything that is open.
 *   options  NULL: as in gp_launch() */
static gp_status dial_once(gp_pool *pool, const gp_pool_options *options, bool *started, gp_timeout *timeout,
                           gp_error *err)
{
    char endpoint[GP_TEXT_ENDPOINT + 8];
    gp_hello hello = pool_hello();
    gp_welcome welcome;
    gp_control_socket_reply reply;
    gp_status status =
        gp_launch(&pool->control_socket, &reply, started, &pool->paths, options, pool->session, timeout, err);

    if (status == GP_OK && !*started && options != NULL && options->secret_env != NULL &&
        options->owner_pid == 0)
        status = send_secrets(pool, options->secret_env, (int)gp_timeout_left(*timeout), err);
    if (status != GP_OK)
        return status;
    if (reply.epoch < pool->epoch)
        return gp_fail(err, GP_EPEER,
                       "a scheduler of epoch %" PRIu64 " replied; expected epoch %" PRIu64 " or later",
                       reply.epoch, pool->epoch);
    pool->epoch = reply.epoch;
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", pool->paths.scheduler_socket);

    /* Each attempt to connect has a time limit, after which a scheduler failure is checked. A busy
     * scheduler needs time for the new link of each attempt, so the limits grow. */
    int attempt_ms = GP_TIMEOUT_SLICE_MS;

    do {
        int64_t left = gp_timeout_left(*timeout);
        int wait_ms = left < 1 ? 1 : left < attempt_ms ? (int)left : attempt_ms;

        status = gp_channel_connect(&pool->scheduler, endpoint, &scheduler_link, wait_ms, err);
        if (status == GP_EPEER && gp_control_socket_gone(pool->control_socket))
            return pool_scheduler_gone(pool, err);
        attempt_ms *= attempt_ms < POOL_LINK_MS ? 2 : 1;
    } while (status == GP_EPEER && gp_timeout_left(*timeout) > 0);
    if (status == GP_OK)
        status = pool_ask(pool, &gp_msg_hello, &hello, &gp_msg_welcome, &welcome, POOL_ANSWER_MS, err);

    /* The scheduler of this control socket failed. Its successor listens on the same address and
     * does not know this session. */
    if (status == GP_EPERM && gp_control_socket_gone(pool->control_socket))
        return pool_scheduler_gone(pool, err);
    if (status == GP_OK) {
        pool->scheduler_pid = welcome.pid;
        gp_fault_point("dialled");
    }
    return status;
}

static void hang_up(gp_pool *pool)
{
    gp_channel_close(pool->scheduler, 0);
    pool->scheduler = NULL;
    if (pool->control_socket >= 0)
        close(pool->control_socket);
    pool->control_socket = -1;
}

gp_status pool_dial(gp_pool *pool, const gp_pool_options *options, bool *started, gp_error *err)
{
    int timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : POOL_OPEN_MS;
    gp_timeout timeout = gp_timeout_in(timeout_ms);
    gp_status status;

    if (pool->remote != NULL)
        return pool_remote_dial(pool, timeout_ms, err);
    pool->dialling = true;
    for (;;) {
        gp_timeout attempt = timeout; /* gp_launch() may extend it */

        status = dial_once(pool, options, started, &attempt, err);
        if (status != GP_EPEER || gp_timeout_left(timeout) == 0)
            break;
        hang_up(pool); /* the scheduler failed during the handshake */
        poll(NULL, 0, RETRY_MS);
    }
    pool->dialling = false;
    return status;
}

/* ---- reconnecting ---- */

/* Claim the lease from the new scheduler, with the members that the client still uses. GP_OK also
 * if the scheduler refuses: the lease has then ended. */
static gp_status claim_lease(gp_pool *pool, gp_timeout timeout, gp_error *err)
{
    gp_lease_claim *claim = &pool->claim;
    gp_ok_reply ok;
    gp_error why;
    gp_status status;

    memcpy(claim->token, pool->grant.token, sizeof(claim->token));
    claim->members_count = pool->grant.slots_count;
    if (pool->elastic.kept != 0 && pool->elastic.kept < claim->members_count)
        claim->members_count = pool->elastic.kept;
    for (uint32_t i = 0; i < claim->members_count; i++)
        claim->members[i] = (gp_lease_member){ .index = pool->grant.slots[i].index,
                                               .incarnation = pool->grant.slots[i].incarnation };
    for (;;) {
        status = pool_ask(pool, &gp_msg_lease_claim, claim, &gp_msg_ok_reply, &ok, POOL_ANSWER_MS, &why);
        if (status != GP_EBUSY || gp_timeout_left(timeout) == 0)
            break;
        poll(NULL, 0, RETRY_MS); /* a worker has not reported to the scheduler yet */
    }
    if (status == GP_OK)
        return GP_OK;
    if (status != GP_ESTALE && status != GP_ENOPOOL)
        return gp_fail(err, status, "%s", why.message);
    pool->revoked = true;
    pool->ended.code = GP_ESTALE;
    snprintf(pool->ended.reason, sizeof(pool->ended.reason), "%.*s", (int)sizeof(pool->ended.reason) - 1,
             why.message);
    return GP_OK;
}

bool pool_missed(const gp_pool *pool)
{
    return access(pool->paths.record, F_OK) == 0;
}

gp_status pool_reconnect(gp_pool *pool, gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(POOL_REUNION_MS);
    int64_t began = gp_now_ms();
    gp_channel *channel = pool->scheduler;
    int control_socket = pool->control_socket;
    uint32_t pid = pool->scheduler_pid;
    gp_error why = { .message = "" };
    gp_status status = GP_EPEER;

    if (pool->dialling)
        return pool_scheduler_gone(pool, err);
    if (pool->remote != NULL)
        return pool_remote_try(pool, err);

    /* An orderly shutdown ends the lease. The scheduler sent lease_ended, but ZeroMQ drops
     * received, unread messages when it detects the end of a link. */
    if (!pool_missed(pool)) {
        if (pool->lease != 0 && !pool->revoked) {
            pool->revoked = true;
            pool->ended.code = GP_ENOPOOL;
            snprintf(pool->ended.reason, sizeof(pool->ended.reason), "the pool is shutting down");
        }
        return pool_scheduler_gone(pool, err);
    }
    pool->dialling = true;
    pool->scheduler = NULL;
    pool->control_socket = -1;
    while (status != GP_OK && gp_timeout_left(timeout) > 0) {
        bool started;
        gp_timeout attempt = timeout; /* gp_launch() may extend it */

        /* the new scheduler takes the settings from the pool record (scheduler/shell/) */
        status = dial_once(pool, NULL, &started, &attempt, &why);
        if (status == GP_OK && pool->lease != 0 && !pool->revoked)
            status = claim_lease(pool, attempt, &why);
        if (status == GP_OK)
            break;
        hang_up(pool);
        if (!pool_missed(pool)) /* the successor was shut down as well */
            break;
        poll(NULL, 0, RETRY_MS);
    }
    pool->dialling = false;
    pool->no_successor = status != GP_OK;
    if (status != GP_OK) {
        pool->scheduler = channel;
        pool->control_socket = control_socket;
        return gp_fail(err, GP_EPEER,
                       "the scheduler of pool %s (pid %" PRIu32
                       ") failed and was not replaced within %d s (%.200s); its log is %s",
                       pool->paths.pool, pid, POOL_REUNION_MS / 1000, why.message, pool->paths.scheduler_log);
    }
    gp_channel_close(channel, 0);
    close(control_socket);
    pool->reunions++;
    pool_note(pool,
              "the scheduler (pid %" PRIu32 ") failed; connected to a new one (pid %" PRIu32 ") after %d ms",
              pid, pool->scheduler_pid, (int)(gp_now_ms() - began));
    return GP_OK;
}
