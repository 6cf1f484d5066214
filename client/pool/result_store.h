/* result_store.h: the results that detached calls leave for other processes, as files of the pool.
 *
 *   STATE/results/entries/NAME       a result_head, then the argument, result or error message
 *   STATE/results/objects/SHA256.so  task objects of the calls that have not ended
 *   STATE/results/lock               flock() of every change; contains the totals
 *   STATE/results/keeper             flock() of the keeper, see result_keeper.h
 *
 *            add                 end                          read, reads_max times
 *   (none) ------> PENDING -----------------------> READY --------------------------> READ
 *                  |  ^ claim                         |  ttl_ms after the end
 *          release v  |                               '-----------------------------> EXPIRED
 *                 RELEASED
 *
 * A process owns a PENDING entry: it runs the call and stores its outcome. If the process has
 * exited, or has released the entry, another process may claim it. Entries in state READ or EXPIRED
 * have no payload; they exist for the error message, and disappear a day later, or at once if the
 * disk is full.
 *
 * An entry is replaced by rename, so a killed process leaves the old or the new one. Nothing is
 * synced: entries survive the end of any process, but not a power failure within the last seconds.
 * The time is an argument, in milliseconds since 1970. */
#ifndef GP_RESULT_STORE_H
#define GP_RESULT_STORE_H

#include <sys/types.h>

#include "client/gradpool.h"
#include "common/base/text/resources.h"
#include "proto/local/paths.h"
#include "proto/task/task_wire.h"

enum {
    RESULT_COUNT_MAX = 10000,        /* entries */
    RESULT_TTL_DEFAULT_MS = 3600000, /* one hour */
    RESULT_TTL_MAX_MS = 7 * 86400000,
    RESULT_FOLDER_BYTES = GP_TEXT_PATH + 16,
};

#define RESULT_BYTES_MAX ((uint64_t)1 << 30)  /* one argument or result */
#define RESULT_TOTAL_MAX ((uint64_t)16 << 30) /* all arguments and results */

/* Entry states; stored in files. */
typedef enum result_state {
    RESULT_PENDING = 1,
    RESULT_RELEASED = 2,
    RESULT_READY = 3,
    RESULT_READ = 4,
    RESULT_EXPIRED = 5,
} result_state;

/* A process, identified also after the pid is reused. */
typedef struct result_owner {
    int64_t pid;
    uint64_t start_time; /* as in gp_proc_stat */
} result_owner;

/* An entry, identified also after its name is reused. */
typedef struct result_key {
    uint64_t serial; /* random */
    char name[GP_RESULT_NAME_BYTES];
} result_key;

/* First bytes of an entry. */
typedef struct result_head {
    uint64_t magic;
    uint32_t state;  /* result_state */
    uint32_t status; /* gp_status of the call, in state READY */
    result_key key;
    uint64_t bytes;            /* payload size */
    uint32_t reads, reads_max; /* reads_max 0: unlimited */
    int64_t ttl_ms;
    int64_t detached_ms, ended_ms; /* ended_ms 0: not yet */

    /* READY: when the result expires. READ, EXPIRED: when the entry is removed. 0: not ended */
    int64_t expires_ms;
    result_owner owner; /* PENDING: runs the call. RELEASED: pid that ran it */
    uint64_t lease;     /* lease of the owner in which the call runs */

    /* The call, as in gp_parfeval_request. */
    char object[2 * 32 + 1]; /* SHA-256 of the task object; "": ended before it was detached */
    char function[GP_TASK_NAME_MAX];
    int32_t priority;
    uint32_t environment;           /* gp_lease_environment: of the call, or else of its lease */
    char needs[GP_RESOURCES_BYTES]; /* resources that the call and its lease need */
    uint32_t starts, attempts;      /* starts: in processes that exited; attempts: maximum number */
    uint32_t retries;
    int64_t timeout_ms;
} result_head;

/* Open result folder of a pool. Only one thread at a time may use it. */
typedef struct result_store {
    char folder[RESULT_FOLDER_BYTES];
    int directory, entries, lock; /* descriptors; -1: closed */

    /* limits; set by result_store_open(), changed only by tests */
    uint64_t bytes_max, total_max;
    uint32_t count_max;
    int lock_ms; /* longest wait for the lock */
} result_store;

/* Task object of a detached call. */
typedef struct result_object {
    int fd; /* readable at offset 0 .. bytes - 1 */
    size_t bytes;
} result_object;

/* Return the current process as the functions below expect it. Their now_ms is gp_unix_ms(). */
result_owner result_self(void);

/* Open the results of a pool; create the folder if it is missing. GP_EPERM: other users have access
 * to the folder. GP_EUNSUPPORTED: the pool is on another host. GP_EIO. */
gp_status result_store_open(result_store *out, const char *state_dir, gp_error *err);
void result_store_close(result_store *store);

/* Watch the entries: the descriptor becomes readable when one is added, changed or removed. -1: the
 * user has too many watches. */
int result_watch(const result_store *store);

/* Check a name: 1 to 63 characters of A-Z a-z 0-9 . _ -, the first a letter or digit. GP_EINVAL. */
gp_status result_name_check(const char *name, gp_error *err);

/* Add an entry in state PENDING or READY. The caller fills in `key`, `state`, `status`,
 * `reads_max`, `ttl_ms`, `owner`, `lease` and the call.
 *   object  of a PENDING entry; stored once for all entries
 * GP_EBUSY: the name is in use. GP_ELIMIT: a limit of bytes or entries is exceeded. GP_EIO. */
gp_status result_add(result_store *store, const result_head *head, const void *data, size_t bytes,
                     const result_object *object, int64_t now_ms, gp_error *err);

/* Store the outcome of a call whose entry this process owns: the result, or, if `status` is not
 * GP_OK, the error message. A result above the limits becomes the error GP_ELIMIT. GP_ESTALE: the
 * entry was removed, or has another owner. GP_EBUSY: another process has held the lock for lock_ms.
 * GP_ELIMIT: this process has no descriptors left. GP_EPERM, GP_ECORRUPT, GP_EIO. */
gp_status result_end(result_store *store, const result_key *key, gp_status status, const void *data,
                     size_t bytes, int64_t now_ms, gp_error *err);

/* Give up an entry of this process, so that another one can claim it.
 *   starts  number of times that this process started the call
 *   ended   the call has ended: no worker runs it any more, so the entry keeps no lease
 * Errors: as for result_end(). */
gp_status result_release(result_store *store, const result_key *key, uint32_t starts, bool ended,
                         gp_error *err);

/* Return whether no process runs the call of the entry, although it has not ended. */
bool result_is_abandoned(const result_head *head);

/* Become the owner of an abandoned entry. The exit of the previous owner counts as a start.
 *   data   set to the argument; free it with gp_free()
 *   lease  lease in which the call will run
 * GP_EBUSY: another process owns it, or the call has ended. GP_ENOENT. GP_ENOMEM. GP_EIO. */
gp_status result_claim(result_head *head, void **data, result_store *store, const char *name, uint64_t lease,
                       gp_error *err);

/* Write the path of a stored task object. */
void result_object_path(const result_store *store, const result_head *head, char *path, size_t bytes);

/* Read the outcome of a call, and count the read.
 *   ended    set to the status of the call, after GP_OK
 *   data     set to the result, or to the error message of a failed call, NUL-terminated; free it
 *            with gp_free()
 *   pending  set to whether the call has not ended
 * GP_EBUSY: the call has not ended; without `pending`: another process has held the lock for
 * lock_ms. GP_ENOENT: no such name. GP_ESTATE: it was read reads_max times. GP_ESTALE: it has
 * expired. GP_EPERM: the file belongs to another user. GP_ENOMEM, GP_ECORRUPT, GP_EIO. */
gp_status result_read(result_store *store, const char *name, gp_status *ended, void **data, size_t *bytes,
                      bool *pending, int64_t now_ms, gp_error *err);

/* Get the head of an entry. GP_ENOENT, GP_EPERM, GP_ECORRUPT, GP_EIO. */
gp_status result_get(result_store *store, const char *name, result_head *head, int64_t now_ms, gp_error *err);

/* Call `visit` for each entry until it returns false. Entries that have expired are in state
 * RESULT_EXPIRED, damaged ones are skipped. GP_EIO. */
gp_status result_each(result_store *store, bool (*visit)(void *context, const result_head *head),
                      void *context, int64_t now_ms, gp_error *err);

/* Remove an entry. GP_ENOENT: no such name. */
gp_status result_remove(result_store *store, const char *name, gp_error *err);

/* Remove expired entries, and the drafts of killed writers. Changes do this once a minute. */
gp_status result_prune(result_store *store, int64_t now_ms, gp_error *err);

/* Determine whether this process should start a keeper: no keeper runs, and no process requested a
 * keeper within the last 5 seconds. GP_EBUSY: another process has held the lock of the store for
 * lock_ms. GP_ELIMIT, GP_EIO. */
gp_status result_keeper_wanted(bool *wanted, result_store *store, int64_t now_ms, gp_error *err);

/* Report that the keeper could not be requested, so that the next caller tries again. */
void result_keeper_missed(result_store *store);

/* Become the keeper. Sets *fd to -1 if another process is the keeper. Errors: as for
 * result_keeper_wanted(). */
gp_status result_keeper_begin(int *fd, result_store *store, gp_error *err);

/* Stop being the keeper and remove the task objects. Return false, without effect, if a call has
 * not ended. */
bool result_keeper_end(int *fd, result_store *store, int64_t now_ms);

#endif
