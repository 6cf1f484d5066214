/* remote.h: the part of a pool handle for pools on another host.
 *
 * The pool is named by an endpoint, tcp://HOST:PORT, or by a profile (client/cluster/profile.h):
 *
 *     connect         = tcp://gpu-box:5555
 *     server-key-file = gpu-box.pub          # the pool's public key; beside the profile if no path
 *     key-file        = laptop.key           # key pair of this client, mode 0600
 *
 * A remote pool has no control socket and no shared memory. All requests use one encrypted link,
 * and requests that need a lease fail with GP_EUNSUPPORTED. After a silence, the client checks the
 * link with a hello. When the scheduler replies, the client repeats all unanswered requests. */
#ifndef GP_REMOTE_H
#define GP_REMOTE_H

#include "client/pool/pool.h"
#include "proto/device/device_list.h"

struct pool_remote {
    char endpoint[GP_TEXT_ENDPOINT];
    char server_key[GP_KEY_TEXT];
    gp_key_pair own;
    int64_t received_ms; /* last message received, or last request sent */
};

/* Find the remote pool of that name. *out is set to NULL for a pool on this host. GP_EINVAL: an
 * endpoint without keys, or a malformed profile line. GP_EPERM: other users can read a key file or
 * write the profile. */
gp_status pool_remote_find(struct pool_remote **out, const gp_pool_options *options, const char *name,
                           gp_error *err);
void pool_remote_free(struct pool_remote *remote); /* wipes the key; accepts NULL */

/* Connect and exchange hello messages. */
gp_status pool_remote_dial(gp_pool *pool, int timeout_ms, gp_error *err);

/* Return whether the message reports an unknown session: the link broke and ZeroMQ made a new one.
 * pool_reconnect() repairs this with a hello, and the caller repeats unanswered requests. */
bool pool_remote_forgotten(const gp_pool *pool, const pool_message *message);

/* Return whether the link needs a check: it was silent for too long or is known to be broken. */
bool pool_remote_stale(gp_pool *pool);

/* Check the link with a hello, and reconnect if necessary. Increments pool->reunions on success.
 * GP_EPEER: no reply in time. GP_EPERM: the server rejected the keys, or has another key. */
gp_status pool_remote_try(gp_pool *pool, gp_error *err);

/* Fail with GP_EUNSUPPORTED if the pool is on another host. `what` names the operation in the
 * message. */
gp_status pool_needs_host(const gp_pool *pool, const char *what, gp_error *err);

/* Part of a file in a job folder. */
typedef struct pool_piece {
    gp_job_piece at;
    size_t bytes;
    char text[GP_JOB_PIECE_BYTES_MAX + 1]; /* NUL-terminated */
} pool_piece;

/* Read a part of a job file, starting at `offset` bytes.
 *   worker  worker of GP_JOB_FILE_WORKER_LOG; ignored for other files */
gp_status pool_job_read(gp_pool *pool, uint64_t job, gp_job_file file, uint32_t worker, uint64_t offset,
                        pool_piece *out, gp_error *err);

/* Get the devices and the core count of the pool's host. */
gp_status pool_devices(gp_pool *pool, gp_device_list *out, uint32_t *cores, gp_error *err);

#endif
