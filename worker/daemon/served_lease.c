#include "worker/daemon/served_lease.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/comm/process.h"

void served_lease_begin(served_lease *lease, const gp_envelope *envelope, const gp_grant *grant)
{
    lease->id = envelope->lease;
    lease->generation = envelope->generation;
    lease->grant = *grant;

    /* stays -1 if the client has exited; the scheduler then revokes the lease */
    if (lease->client_pidfd < 0)
        lease->client_pidfd = (int)syscall(SYS_pidfd_open, (pid_t)grant->client_pid, 0);
}

void served_lease_end(served_lease *lease)
{
    if (lease->client_pidfd >= 0)
        close(lease->client_pidfd);
    memset(lease, 0, sizeof(*lease));
    lease->client_pidfd = -1;
}

/* Check that a message belongs to the served lease and generation. */
static gp_status lease_check(const served_lease *lease, const gp_envelope *envelope, uint32_t worker,
                             gp_error *err)
{
    if (lease->id == 0 || lease->resetting)
        return gp_fail(err, GP_ESTALE, "worker %u has no lease; lease %llu has ended", worker,
                       (unsigned long long)envelope->lease);
    if (envelope->lease != lease->id || envelope->generation != lease->generation)
        return gp_fail(err, GP_ESTALE, "worker %u has lease %llu generation %u, not lease %llu generation %u",
                       worker, (unsigned long long)lease->id, lease->generation,
                       (unsigned long long)envelope->lease, envelope->generation);
    return GP_OK;
}

gp_status served_lease_check_client(const served_lease *lease, const gp_incoming *in, uint32_t worker,
                                    gp_error *err)
{
    gp_status status = lease_check(lease, &in->envelope, worker, err);

    if (status == GP_OK && !gp_peer_equal(&lease->client, &in->peer))
        status =
            gp_fail(err, GP_EPERM, "not attached to lease %llu; attach first", (unsigned long long)lease->id);
    return status;
}

/* Compare two tokens in constant time. */
static bool token_equal(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;

    for (int i = 0; i < 16; i++)
        difference |= (unsigned)(a[i] ^ b[i]);
    return difference == 0;
}

gp_status served_lease_attach(served_lease *lease, const gp_incoming *in, const uint8_t *token,
                              uint32_t worker, gp_error *err)
{
    if (lease_check(lease, &in->envelope, worker, err) != GP_OK)
        return err->code;
    if (!token_equal(token, lease->grant.token))
        return gp_fail(err, GP_EPERM, "wrong token for lease %llu", (unsigned long long)lease->id);
    lease->client = in->peer;
    memcpy(lease->client_session, in->envelope.session, sizeof(lease->client_session));
    lease->client_left = false;
    return GP_OK;
}

bool served_lease_authorizes(const served_lease *lease, const gp_control_socket_request *request)
{
    return lease->id != 0 && request->lease == lease->id && !lease->resetting &&
           token_equal(request->token, lease->grant.token);
}

bool served_lease_includes(const served_lease *lease, uint32_t worker, uint32_t world)
{
    for (uint32_t rank = 0; rank < world && rank < lease->grant.members_count; rank++)
        if (lease->grant.members[rank].index == worker)
            return true;
    return false;
}

bool served_lease_client_exited(const served_lease *lease)
{
    return lease->client_pidfd < 0 || gp_process_dead(lease->client_pidfd);
}

void served_lease_report(const served_lease *lease, gp_worker_ready *ready)
{
    if (lease->id == 0)
        return;
    ready->state = GP_WORKER_BUSY;
    ready->lease = lease->id;
    ready->generation = lease->generation;
    memcpy(ready->token, lease->grant.token, sizeof(ready->token));
    if (lease->client.bytes == 0 || lease->client_left || served_lease_client_exited(lease))
        return;
    ready->client_pid = lease->grant.client_pid;
    memcpy(ready->client_session, lease->client_session, sizeof(ready->client_session));
}
