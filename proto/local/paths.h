/* Paths of the sockets, locks, logs and state of a pool. All processes of a user derive the same
 * paths:
 *
 *   user_dir   /tmp/gradpool-UID; or STATE/.run.HOST if that exists or another user owns
 *              /tmp/gradpool-UID
 *   runtime    $GRADPOOL_RUNTIME_DIR; else /run/user/UID/gradpool if the user owns /run/user/UID
 *              and lingers (/var/lib/systemd/linger/NAME exists; otherwise logout deletes the
 *              directory); else user_dir
 *   pool_dir   runtime/POOL: lock and sockets
 *   state      $GRADPOOL_STATE_DIR, else $XDG_STATE_HOME/gradpool, else
 *              ~/.local/state/gradpool
 *   state_dir  state/HOST/POOL: journal, epoch, jobs; log_dir is state_dir/log
 *   key_dir    state/HOST/POOL/keys: keys for links to other hosts
 *   devices    user_dir/devices; ignores GRADPOOL_RUNTIME_DIR, so that device claims hold across
 *              all pools of the user
 *
 * These directories must have mode 0700, belong to the user, and not be symbolic links. Anything
 * else is refused, because a process that can write there can impersonate a daemon. */
#ifndef GP_PATHS_H
#define GP_PATHS_H

#include <stdint.h>

#include "common/base/error.h"
#include "proto/message/limits.h"

enum {
    GP_POOL_NAME_MAX = 32,
    /* without the NUL; sun_path has 108 bytes, and temporary names need up to 7 */
    GP_SOCKET_PATH_MAX = 100,
};

/* All paths of one pool. gp_paths_find() fills them in. */
typedef struct gp_paths {
    char pool[GP_POOL_NAME_MAX + 1];
    char runtime[GP_TEXT_ENDPOINT];
    char pool_dir[GP_TEXT_ENDPOINT];
    char lock[GP_TEXT_ENDPOINT];                     /* pool_dir/lock: held by a live scheduler */
    char record[GP_TEXT_ENDPOINT];                   /* pool_dir/record: removed by an orderly shutdown */
    char scheduler_socket[GP_TEXT_ENDPOINT];         /* pool_dir/scheduler */
    char scheduler_control_socket[GP_TEXT_ENDPOINT]; /* pool_dir/scheduler.door */
    char state_root[GP_TEXT_PATH];                   /* `state` above */
    char state_dir[GP_TEXT_PATH];
    char log_dir[GP_TEXT_PATH];
    char scheduler_log[GP_TEXT_PATH]; /* log_dir/scheduler.log */
    char device_dir[GP_TEXT_ENDPOINT];
    char key_dir[GP_TEXT_PATH];    /* state_dir/keys; created with the first key */
    char server_key[GP_TEXT_PATH]; /* key_dir/server.key: key pair of this pool for other hosts */
    char allowed[GP_TEXT_PATH];    /* key_dir/allowed: public keys that may connect */
} gp_paths;

/* Derive the paths of a pool (NULL: "default"). Reads the file system but does not change it.
 *
 * GP_EINVAL: the name does not match [A-Za-z0-9._-]{1,32} or has only dots, or a variable is not an
 * absolute path.
 * GP_ELIMIT: a socket path exceeds 100 bytes or a log path 159; the error names the path and the
 * variable to set. */
gp_status gp_paths_find(gp_paths *out, const char *pool, gp_error *err);

/* Create missing directories with mode 0700 and check all of them: runtime, pool_dir, state_dir,
 * log_dir, device_dir.
 *
 * GP_EPERM: a directory is a symbolic link, belongs to another user, or is open to others; the
 * error names it and the fix. GP_EIO: a directory cannot be created. */
gp_status gp_paths_create(const gp_paths *paths, gp_error *err);

/* Check the directories without creating any. GP_ENOPOOL: pool_dir does not exist. GP_EPERM: as
 * above. */
gp_status gp_paths_check(const gp_paths *paths, gp_error *err);

/* Write the path of a worker's file to `out`: its ZeroMQ socket (suffix ""), control socket
 * (".door") or exit reason (".words": worker/process/exit_reason.h). index and
 * incarnation count from 1. The ZeroMQ endpoint is "ipc://" followed by the socket path. */
void gp_paths_worker_file(const gp_paths *paths, uint32_t index, uint32_t incarnation, const char *suffix,
                          char out[GP_TEXT_ENDPOINT]);

/* Write the path of a worker's log to `out`. */
void gp_paths_worker_log(const gp_paths *paths, uint32_t index, char out[GP_TEXT_PATH]);

/* Create a directory in state_dir with mode 0700 if it is missing, and check type, owner and mode.
 * The parent directory must exist. */
gp_status gp_directory_secure(const char *path, gp_error *err);

#endif
