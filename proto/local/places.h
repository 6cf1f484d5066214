/* places.h -- the paths of a pool's sockets, locks, logs and state; every process of a user derives the same ones.
 *
 *   user_dir  /tmp/gradpool-UID; or STATE/.run.HOST if that exists or another user owns /tmp/gradpool-UID
 *   runtime   $GRADPOOL_RUNTIME_DIR; else /run/user/UID/gradpool if that directory is ours and the user lingers
 *             (/var/lib/systemd/linger/NAME; without lingering, logout removes it); else user_dir
 *   pool_dir  runtime/POOL: lock, sockets
 *   state     $GRADPOOL_STATE_DIR, else $XDG_STATE_HOME/gradpool, else ~/.local/state/gradpool
 *   state_dir state/HOST/POOL: journal, epoch, jobs; log_dir is state_dir/log
 *   key_dir   state/HOST/POOL/keys, for links to other hosts
 *   devices   user_dir/devices, whatever GRADPOOL_RUNTIME_DIR is: claims hold across all pools of the user
 *
 * Our directories have mode 0700, are owned by the user and are no symbolic links; anything else is refused, because a
 * process that can write there can answer in place of a daemon. */
#ifndef GP_PLACES_H
#define GP_PLACES_H

#include <stdint.h>

#include "common/base/error.h"
#include "proto/message/limits.h"

enum {
    GP_POOL_NAME_MAX = 32,
    GP_SOCKET_PATH_MAX = 100, /* bytes without the NUL; sun_path has 108 and temporary names need a few */
};

typedef struct gp_places {
    char pool[GP_POOL_NAME_MAX + 1];
    char runtime[GP_TEXT_ENDPOINT];
    char pool_dir[GP_TEXT_ENDPOINT];
    char lock[GP_TEXT_ENDPOINT];             /* pool_dir/lock: held by the scheduler for life */
    char record[GP_TEXT_ENDPOINT];           /* pool_dir/record: there until the pool ends as it was told */
    char scheduler_socket[GP_TEXT_ENDPOINT]; /* pool_dir/scheduler */
    char scheduler_door[GP_TEXT_ENDPOINT];   /* pool_dir/scheduler.door */
    char state_root[GP_TEXT_PATH];           /* state */
    char state_dir[GP_TEXT_PATH];
    char log_dir[GP_TEXT_PATH];
    char scheduler_log[GP_TEXT_PATH]; /* log_dir/scheduler.log */
    char device_dir[GP_TEXT_ENDPOINT];
    char key_dir[GP_TEXT_PATH];    /* state_dir/keys: made when the first key is */
    char server_key[GP_TEXT_PATH]; /* key_dir/server.key: the pair by which other hosts know this pool */
    char allowed[GP_TEXT_PATH];    /* key_dir/allowed: whose keys come in */
} gp_places;

/* gp_places_find -- work out the places of a pool ("default" when pool is NULL); touches no file but to look.
 * GP_EINVAL: the name is not of [A-Za-z0-9._-]{1,32} or is all dots; a variable is not an absolute path.
 * GP_ELIMIT: a socket path would pass 100 bytes or a log path 159: names the path and the variable to set. */
gp_status gp_places_find(gp_places *out, const char *pool, gp_error *err);

/* gp_places_create -- make what is missing (0700) and check what is there: runtime, pool_dir, state_dir, log_dir,
 * device_dir.  GP_EPERM: a directory is a link, another user's, or open to others (names it and the fix). */
gp_status gp_places_create(const gp_places *places, gp_error *err);

/* gp_places_check -- for those who only look: GP_ENOPOOL when pool_dir is not there, GP_EPERM as above. */
gp_status gp_places_check(const gp_places *places, gp_error *err);

/* Paths of a worker's socket, door, log and last words (worker/process/last_words.h) into out; index and incarnation from 1.
 * A worker's endpoint on the wire is "ipc://" + its socket. */
void gp_places_worker_socket(const gp_places *places, uint32_t index, uint32_t incarnation,
                             char out[GP_TEXT_ENDPOINT]);
void gp_places_worker_door(const gp_places *places, uint32_t index, uint32_t incarnation,
                           char out[GP_TEXT_ENDPOINT]);
void gp_places_worker_log(const gp_places *places, uint32_t index, char out[GP_TEXT_PATH]);
void gp_places_worker_words(const gp_places *places, uint32_t index, uint32_t incarnation,
                            char out[GP_TEXT_PATH]);

/* gp_directory_secure -- make path (its parent must be there) 0700 if missing, and check owner, kind and mode. */
gp_status gp_directory_secure(const char *path, gp_error *err);

#endif
