/* remote.h -- inside a pool handle: a pool on another host.
 *
 * It is named by its endpoint, tcp://HOST:PORT, or by a profile, a file NAME.conf in the configuration directory
 * ($XDG_CONFIG_HOME/gradpool, else ~/.config/gradpool):
 *
 *     connect         = tcp://gpu-box:5555
 *     server-key-file = gpu-box.pub          # the pool's public key; beside the profile, if it is no path
 *     key-file        = laptop.key           # ours, mode 0600
 *
 * There is no door and no memory to share: what is asked goes over one encrypted link, and what needs leases is refused in
 * words.  A link that is silent is tried by a hello; when that is answered, everything that was not is asked again. */
#ifndef GP_REMOTE_H
#define GP_REMOTE_H

#include "client/pool/pool.h"
#include "proto/device/device_list.h"

struct pool_remote {
    char endpoint[GP_TEXT_ENDPOINT];
    char server_key[GP_KEY_TEXT];
    gp_key_pair own;
    int64_t heard_ms; /* the last message from there, or our last question */
};

/* *out: NULL for a pool of this host.  GP_EINVAL: an endpoint without keys, a profile with a line that is none.  GP_EPERM: a
 * key file that others can read. */
gp_status pool_remote_find(struct pool_remote **out, const gp_pool_options *options, const char *name,
                           gp_error *err);
void pool_remote_free(struct pool_remote *remote); /* wipes the key; accepts NULL */

/* Connect and say hello. */
gp_status pool_remote_dial(gp_pool *pool, int timeout_ms, gp_error *err);

/* Whether the message says that the pool does not know this session: its link was lost and is a new one.  A hello and all that was
 * not answered put that right. */
bool pool_remote_forgotten(const gp_pool *pool, const pool_message *message);

/* Whether so long nothing came that the link is to be tried, or it is known to have broken; and the trial: GP_OK, and pool->reunions has counted on; or
 * GP_EPEER, GP_EPERM. */
bool pool_remote_doubtful(gp_pool *pool);
gp_status pool_remote_try(gp_pool *pool, gp_error *err);

/* GP_EUNSUPPORTED, in words, if the pool is on another host. */
gp_status pool_needs_host(const gp_pool *pool, const char *what, gp_error *err);

/* A piece of a file of a job's folder. */
typedef struct pool_piece {
    gp_job_piece at;
    size_t bytes;
    char text[GP_JOB_PIECE_BYTES_MAX + 1]; /* NUL-terminated */
} pool_piece;

/* worker: of GP_JOB_FILE_WORKER_LOG. */
gp_status pool_job_read(gp_pool *pool, uint64_t job, gp_job_file file, uint32_t worker, uint64_t offset,
                        pool_piece *out, gp_error *err);

/* The devices of the pool's host. */
gp_status pool_devices(gp_pool *pool, gp_device_list *out, uint32_t *cores, gp_error *err);

#endif
