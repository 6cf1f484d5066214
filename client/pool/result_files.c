/* result_files.c: the files of the results of a pool: entries, drafts, the lock and its totals. */
#include "client/pool/result_files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/system/proc_stat.h"

#define TOTALS_MAGIC UINT64_C(0x316b636f6c736572)

enum {
    LOCK_MS = 10000,             /* a change takes milliseconds; a suspended process may hold the lock */
    PRUNE_MS = 60000,            /* interval of result_prune() */
    TOMBSTONE_MS = 86400000,     /* how long a read or expired entry stays as a tombstone */
    ABANDONED_MS = 7 * 86400000, /* how long an entry waits for a process */
};

/* ---- time and processes ---- */

result_owner result_self(void)
{
    gp_proc_stat info = { .start_time = 0 };

    gp_proc_stat_read(&info, getpid());
    return (result_owner){ .pid = getpid(), .start_time = info.start_time };
}

static bool owner_is_alive(const result_owner *owner)
{
    gp_proc_stat info;

    return owner->pid > 0 && gp_proc_stat_read(&info, (pid_t)owner->pid) &&
           info.start_time == owner->start_time && info.state != 'Z' && info.state != 'X';
}

bool result_owner_is_self(const result_owner *owner)
{
    const result_owner self = result_self();

    /* Without a free descriptor the start time is unknown; the pid must then suffice. */
    return owner->pid == self.pid && (self.start_time == 0 || owner->start_time == self.start_time);
}

bool result_is_abandoned(const result_head *head)
{
    return head->state == RESULT_RELEASED || (head->state == RESULT_PENDING && !owner_is_alive(&head->owner));
}

/* ---- names ---- */

gp_status result_name_check(const char *name, gp_error *err)
{
    size_t length = strlen(name);
    bool valid = length > 0 && length < GP_RESULT_NAME_BYTES && isalnum((unsigned char)name[0]);

    for (size_t i = 0; valid && i < length; i++)
        valid = isalnum((unsigned char)name[i]) || name[i] == '.' || name[i] == '_' || name[i] == '-';
    return valid ? GP_OK
                 : gp_fail(err, GP_EINVAL,
                           "'%.80s' cannot name a result; use 1 to %d characters of A-Z a-z 0-9 . _ -, the "
                           "first a letter or digit",
                           name, GP_RESULT_NAME_BYTES - 1);
}

void result_object_path(const result_store *store, const result_head *head, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/objects/%s.so", store->folder, head->object);
}

/* ---- opening ---- */

gp_status result_store_open(result_store *out, const char *state_dir, gp_error *err)
{
    static const char *const folders[] = { "objects", "entries" };
    result_store store = { .directory = -1,
                           .entries = -1,
                           .lock = -1,
                           .bytes_max = RESULT_BYTES_MAX,
                           .total_max = RESULT_TOTAL_MAX,
                           .count_max = RESULT_COUNT_MAX,
                           .lock_ms = LOCK_MS };
    gp_status status;

    if (state_dir[0] == '\0')
        return gp_fail(err, GP_EUNSUPPORTED, "a pool on another host does not give access to its results");
    snprintf(store.folder, sizeof(store.folder), "%s/results", state_dir);
    status = gp_directory_secure(store.folder, err);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && status == GP_OK; i++) {
        char path[RESULT_FOLDER_BYTES + 16];

        snprintf(path, sizeof(path), "%s/%s", store.folder, folders[i]);
        status = gp_directory_secure(path, err);
    }
    if (status != GP_OK)
        return status;
    store.directory = open(store.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store.directory >= 0)
        store.entries = openat(store.directory, "entries", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store.entries >= 0)
        store.lock = openat(store.directory, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (store.lock < 0) {
        status = gp_fail_errno(err, GP_EIO, "cannot open the results in %s", store.folder);
        result_store_close(&store);
        return status;
    }
    *out = store;
    return GP_OK;
}

void result_store_close(result_store *store)
{
    if (store->directory >= 0)
        close(store->directory);
    if (store->entries >= 0)
        close(store->entries);
    if (store->lock >= 0)
        close(store->lock);
    store->directory = store->entries = store->lock = -1;
}

/* ---- reading entries ---- */

/* Read the head of an open file. GP_ECORRUPT: the file is no entry of that name. */
static gp_status head_read(result_head *out, int fd, const struct stat *info, const char *name, gp_error *err)
{
    bool whole = gp_read_at(fd, out, sizeof(*out), 0) == (ssize_t)sizeof(*out);

    if (!whole || out->magic != RESULT_MAGIC || out->bytes != (uint64_t)info->st_size - sizeof(*out) ||
        out->state < RESULT_PENDING || out->state > RESULT_EXPIRED || out->reads_max > UINT32_MAX / 2 ||
        memchr(out->key.name, '\0', sizeof(out->key.name)) == NULL || strcmp(out->key.name, name) != 0 ||
        memchr(out->object, '\0', sizeof(out->object)) == NULL ||
        memchr(out->function, '\0', sizeof(out->function)) == NULL ||
        memchr(out->needs, '\0', sizeof(out->needs)) == NULL)
        return gp_fail(err, GP_ECORRUPT,
                       "the file of result '%s' is damaged; remove it with: gradpool "
                       "results remove %s",
                       name, name);
    return GP_OK;
}

/* Open an entry. Close entry->fd after GP_OK. */
gp_status result_entry_open(result_entry *out, const result_store *store, const char *name, gp_error *err)
{
    gp_status status = result_name_check(name, err);

    if (status != GP_OK)
        return status;
    out->fd = openat(store->entries, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (out->fd < 0)
        return errno == ENOENT
                   ? gp_fail(err, GP_ENOENT, "there is no result '%s'; 'gradpool results' lists them", name)
                   : gp_fail_errno(err, errno == EACCES || errno == ELOOP ? GP_EPERM : GP_EIO,
                                   "cannot open the result '%s'", name);
    if (fstat(out->fd, &out->info) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot stat the result '%s'", name);
    else if (out->info.st_uid != geteuid())
        status =
            gp_fail(err, GP_EPERM, "the result '%s' belongs to user %u", name, (unsigned)out->info.st_uid);
    else
        status = head_read(&out->head, out->fd, &out->info, name, err);
    if (status != GP_OK)
        close(out->fd);
    return status;
}

/* Return whether the entry has expired and still has its payload. */
bool result_has_expired(const result_head *head, int64_t now_ms)
{
    return head->state == RESULT_READY
               ? now_ms >= head->expires_ms
               : now_ms >= head->detached_ms + ABANDONED_MS && result_is_abandoned(head);
}

/* ---- writing entries, with the lock held ---- */

gp_status result_lock(result_store *store, result_totals *sums, gp_error *err)
{
    gp_status status = gp_file_lock_wait(store->lock, store->lock_ms);

    if (status != GP_OK)
        return gp_fail(err, status, "cannot lock %s/lock; another process has held it for %d s",
                       store->folder, store->lock_ms / 1000);
    if (gp_read_at(store->lock, sums, sizeof(*sums), 0) != (ssize_t)sizeof(*sums) ||
        sums->magic != TOTALS_MAGIC)
        *sums = (result_totals){ .magic = TOTALS_MAGIC };
    return GP_OK;
}

void result_unlock(result_store *store, const result_totals *sums)
{
    if (pwrite(store->lock, sums, sizeof(*sums), 0) != (ssize_t)sizeof(*sums)) {
        /* The next result_prune() counts again. */
    }
    flock(store->lock, LOCK_UN);
}

/* Write a new file with a head and a payload, under a temporary name. */
gp_status result_draft_write(const result_store *store, const result_head *head, const void *data,
                             size_t bytes, char draft[RESULT_DRAFT_BYTES], gp_error *err)
{
    static _Atomic uint32_t drafts;
    gp_status status = GP_OK;
    int fd;

    /* A killed writer with the same pid may have left drafts. */
    do {
        snprintf(draft, RESULT_DRAFT_BYTES, ".t-%d-%" PRIu32, (int)getpid(), atomic_fetch_add(&drafts, 1));
        fd = openat(store->entries, draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    } while (fd < 0 && errno == EEXIST);
    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write the result '%s' to %s", head->key.name,
                             store->folder);
    if (!gp_write_all(fd, head, sizeof(*head)) || (bytes > 0 && !gp_write_all(fd, data, bytes))) {
        status =
            gp_fail_errno(err, GP_EIO, "cannot write the result '%s' to %s", head->key.name, store->folder);
        unlinkat(store->entries, draft, 0);
    }
    close(fd);
    return status;
}

/* Rename a draft to the name of its entry, or remove the draft on failure. old: the entry that it
 * replaces; NULL: none. */
gp_status result_draft_commit(const result_store *store, result_totals *sums, const char *draft,
                              const result_head *head, const result_head *old, gp_error *err)
{

    if (renameat(store->entries, draft, store->entries, head->key.name) != 0) {
        gp_status status = gp_fail_errno(err, GP_EIO, "cannot rename the result '%s'", head->key.name);

        unlinkat(store->entries, draft, 0);
        return status;
    }
    sums->count += old == NULL;
    sums->bytes += head->bytes;
    sums->bytes -= old != NULL && old->bytes <= sums->bytes ? old->bytes : 0;
    return GP_OK;
}

/* Replace an entry by one without a payload, which only explains where the result is. If it cannot
 * be written, as on a full disk, remove the old entry. */
gp_status result_bury(const result_store *store, result_totals *sums, const result_head *old,
                      result_state state, int64_t now_ms, gp_error *err)
{
    result_head head = *old;
    char draft[RESULT_DRAFT_BYTES];

    head.state = state;
    head.bytes = 0;
    head.expires_ms = now_ms + TOMBSTONE_MS;
    if (result_draft_write(store, &head, NULL, 0, draft, NULL) == GP_OK)
        return result_draft_commit(store, sums, draft, &head, old, err);
    if (unlinkat(store->entries, old->key.name, 0) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot remove the result '%s'", old->key.name);
    sums->count -= sums->count > 0;
    sums->bytes -= old->bytes <= sums->bytes ? old->bytes : 0;
    return GP_OK;
}

/* Change the head of an open entry. */
gp_status result_head_write(const result_entry *e, gp_error *err)
{
    return pwrite(e->fd, &e->head, sizeof(e->head), 0) == (ssize_t)sizeof(e->head)
               ? GP_OK
               : gp_fail_errno(err, GP_EIO, "cannot change the result '%s'", e->head.key.name);
}

/* Remove a draft whose writer has exited: ".t-PID-NUMBER". */
static void draft_prune(const result_store *store, const char *draft)
{
    gp_proc_stat info;

    if (!gp_proc_stat_read(&info, (pid_t)atoi(draft + 3)))
        unlinkat(store->entries, draft, 0);
}

/* Remove expired entries, and count the others. `live`: set to the number of calls that have not
 * ended; may be NULL. */
gp_status result_scan(result_store *store, result_totals *sums, uint64_t *live, int64_t now_ms, gp_error *err)
{
    int fd = openat(store->entries, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd >= 0 ? fdopendir(fd) : NULL;
    uint64_t pending = 0;

    if (all == NULL) {
        if (fd >= 0)
            close(fd);
        return gp_fail_errno(err, GP_EIO, "cannot list %s", store->folder);
    }
    sums->count = sums->bytes = 0;
    for (const struct dirent *file; (file = readdir(all)) != NULL;) {
        result_entry e;

        if (strncmp(file->d_name, ".t-", 3) == 0)
            draft_prune(store, file->d_name);
        if (file->d_name[0] == '.')
            continue;
        sums->count++;
        if (result_entry_open(&e, store, file->d_name, NULL) != GP_OK)
            continue;
        close(e.fd);
        sums->bytes += e.head.bytes;
        if (e.head.state < RESULT_READ && result_has_expired(&e.head, now_ms)) {
            result_bury(store, sums, &e.head, RESULT_EXPIRED, now_ms, NULL);
        } else if (e.head.state >= RESULT_READ && now_ms >= e.head.expires_ms) {
            sums->count -= unlinkat(store->entries, file->d_name, 0) == 0;
        } else {
            pending += e.head.state <= RESULT_RELEASED;
        }
    }
    closedir(all);
    sums->pruned_ms = now_ms;
    if (live != NULL)
        *live = pending;
    return GP_OK;
}

/* Remove entries that have been read or have expired, to make room. */
static void prune_buried(const result_store *store, result_totals *sums)
{
    int fd = openat(store->entries, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd >= 0 ? fdopendir(fd) : NULL;

    if (all == NULL && fd >= 0)
        close(fd);
    for (const struct dirent *file; all != NULL && (file = readdir(all)) != NULL;) {
        result_entry e;

        if (file->d_name[0] == '.' || result_entry_open(&e, store, file->d_name, NULL) != GP_OK)
            continue;
        close(e.fd);
        if (e.head.state >= RESULT_READ)
            sums->count -= unlinkat(store->entries, file->d_name, 0) == 0;
    }
    if (all != NULL)
        closedir(all);
}

/* Prune once a minute, and whenever a limit is exceeded. GP_ELIMIT: the limit is still exceeded. */
gp_status result_make_room(result_store *store, result_totals *sums, uint64_t count, uint64_t bytes,
                           int64_t now_ms, gp_error *err)
{
    gp_status status = GP_OK;

    if (bytes > store->bytes_max)
        return gp_fail(err, GP_ELIMIT,
                       "%" PRIu64 " bytes are too many for one result; the maximum is %" PRIu64, bytes,
                       store->bytes_max);
    if (sums->count + count > store->count_max || sums->bytes + bytes > store->total_max ||
        now_ms - sums->pruned_ms >= PRUNE_MS || now_ms < sums->pruned_ms)
        status = result_scan(store, sums, NULL, now_ms, err);
    if (status == GP_OK && sums->count + count > store->count_max)
        prune_buried(store, sums);
    if (status != GP_OK)
        return status;
    if (sums->count + count > store->count_max)
        return gp_fail(err, GP_ELIMIT,
                       "the pool has %" PRIu64 " results, the maximum; fetch some, or remove them with: "
                       "gradpool results remove NAME",
                       sums->count);
    if (sums->bytes + bytes > store->total_max)
        return gp_fail(err, GP_ELIMIT,
                       "the results of the pool have %" PRIu64 " bytes, and %" PRIu64
                       " more exceed the maximum of %" PRIu64 "; fetch some first",
                       sums->bytes, bytes, store->total_max);
    return GP_OK;
}

/* ---- objects ---- */

/* Store a task object, unless it is there already. */
gp_status result_object_store(const result_store *store, const result_head *head, const result_object *object,
                              gp_error *err)
{
    char path[RESULT_FOLDER_BYTES + 100], *buffer;
    gp_file_draft draft;
    gp_status status;

    result_object_path(store, head, path, sizeof(path));
    if (access(path, F_OK) == 0)
        return GP_OK;
    buffer = gp_malloc(object->bytes);
    if (buffer == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a task object of %zu bytes", object->bytes);
    status = gp_read_at(object->fd, buffer, object->bytes, 0) == (ssize_t)object->bytes
                 ? gp_file_draft_open(&draft, path, err)
                 : gp_fail_errno(err, GP_EIO, "cannot read a task object");
    if (status == GP_OK) {
        fchmod(draft.fd, 0600);
        if (gp_write_all(draft.fd, buffer, object->bytes)) {
            status = gp_file_draft_commit(&draft, err);
        } else {
            status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
            gp_file_draft_discard(&draft);
        }
    }
    gp_free(buffer);
    return status;
}
