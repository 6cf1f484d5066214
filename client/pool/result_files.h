/* result_files.h: internal interface between the files of the result store (result_store.h).
 *
 *   result_store.c  what callers do with entries
 *   result_files.c  entries as files: read, write, replace, expire */
#ifndef GP_RESULT_FILES_H
#define GP_RESULT_FILES_H

#include <sys/stat.h>

#include "client/pool/result_store.h"

#define RESULT_MAGIC UINT64_C(0x31746c7365726770) /* result_head.magic: "pgreslt1" */

/* ".t-PID-NUMBER": name of an entry that is being written */
enum { RESULT_DRAFT_BYTES = 32 };

/* Contents of the lock file; valid while the lock is held. */
typedef struct result_totals {
    uint64_t magic, count, bytes; /* entries and their payload, as of the last change */
    int64_t pruned_ms, keeper_asked_ms;
} result_totals;

/* An open entry. */
typedef struct result_entry {
    int fd;
    struct stat info;
    result_head head;
} result_entry;

/* Open an entry and check its head. Close entry->fd after GP_OK. Errors as for result_get(). */
gp_status result_entry_open(result_entry *out, const result_store *store, const char *name, gp_error *err);

bool result_owner_is_self(const result_owner *owner);

/* Return whether an entry in state PENDING, RELEASED or READY has expired. */
bool result_has_expired(const result_head *head, int64_t now_ms);

/* Take the lock and read the totals. GP_EBUSY: another process has held it for 10 s. */
gp_status result_lock(result_store *store, result_totals *sums, gp_error *err);

/* Write the totals and release the lock. */
void result_unlock(result_store *store, const result_totals *sums);

/* Write a new entry under a temporary name. Needs no lock. */
gp_status result_draft_write(const result_store *store, const result_head *head, const void *data,
                             size_t bytes, char draft[RESULT_DRAFT_BYTES], gp_error *err);

/* ---- with the lock held ---- */

/* Rename a draft to the name of its entry, or remove the draft on failure. old: the entry that it
 * replaces; NULL: none. */
gp_status result_draft_commit(const result_store *store, result_totals *sums, const char *draft,
                              const result_head *head, const result_head *old, gp_error *err);

/* Replace an entry by one without a payload, in state READ or EXPIRED, or remove it if the disk is
 * full. */
gp_status result_bury(const result_store *store, result_totals *sums, const result_head *old,
                      result_state state, int64_t now_ms, gp_error *err);

/* Write the changed head of an open entry. */
gp_status result_head_write(const result_entry *e, gp_error *err);

/* Remove what has expired, and count the rest.
 *   live  set to the number of calls that have not ended; may be NULL */
gp_status result_scan(result_store *store, result_totals *sums, uint64_t *live, int64_t now_ms,
                      gp_error *err);

/* Scan once a minute, and whenever another entry with that payload would exceed a limit.
 *   count  1; 0: the entry replaces another one
 * GP_ELIMIT: the limit would still be exceeded. */
gp_status result_make_room(result_store *store, result_totals *sums, uint64_t count, uint64_t bytes,
                           int64_t now_ms, gp_error *err);

/* Store a task object, unless it is there already. */
gp_status result_object_store(const result_store *store, const result_head *head, const result_object *object,
                              gp_error *err);

#endif
