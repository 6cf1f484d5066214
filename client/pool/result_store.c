#include "client/pool/result_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/pool/result_files.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"

/* interval between two requests for a keeper, which needs some time to start */
enum { KEEPER_ASKED_MS = 5000 };

/* ---- changes ---- */

gp_status result_add(result_store *store, const result_head *given, const void *data, size_t bytes,
                     const result_object *object, int64_t now_ms, gp_error *err)
{
    result_head head = *given;
    char draft[RESULT_DRAFT_BYTES];
    result_totals sums;
    result_entry old;
    bool replaces;
    gp_status status = result_name_check(head.key.name, err);

    head.magic = RESULT_MAGIC;
    head.bytes = bytes;
    head.detached_ms = now_ms;
    head.ended_ms = head.state == RESULT_READY ? now_ms : 0;
    head.expires_ms = head.state == RESULT_READY ? now_ms + head.ttl_ms : 0;
    if (status == GP_OK && bytes > store->bytes_max)
        status = result_make_room(store, &(result_totals){ .pruned_ms = now_ms }, 0, bytes, now_ms, err);
    if (status == GP_OK)
        status = result_draft_write(store, &head, data, bytes, draft, err);
    if (status != GP_OK)
        return status;
    status = result_lock(store, &sums, err);
    if (status == GP_OK) {
        status = result_make_room(store, &sums, 1, bytes, now_ms, err);
        gp_status found = result_entry_open(&old, store, head.key.name, NULL);

        replaces = found == GP_OK;
        if (replaces)
            close(old.fd);
        if (status == GP_OK && found != GP_ENOENT && (!replaces || old.head.state < RESULT_READ))
            status = gp_fail(err, GP_EBUSY,
                             "the pool already has a result '%s'; remove it, or choose another name",
                             head.key.name);
        if (status == GP_OK && head.state == RESULT_PENDING)
            status = result_object_store(store, &head, object, err);
        if (status == GP_OK)
            status = result_draft_commit(store, &sums, draft, &head, replaces ? &old.head : NULL, err);
        else
            unlinkat(store->entries, draft, 0);
        result_unlock(store, &sums);
    } else {
        unlinkat(store->entries, draft, 0);
    }
    return status;
}

/* Open an entry that this process owns. GP_ESTALE: it was removed, or has another owner. Other
 * errors: as for result_get(). */
static gp_status own_open(result_entry *e, const result_store *store, const result_key *key, gp_error *err)
{
    gp_status status = result_entry_open(e, store, key->name, err);

    if (status == GP_OK && (e->head.state != RESULT_PENDING || e->head.key.serial != key->serial ||
                            !result_owner_is_self(&e->head.owner))) {
        close(e->fd);
        status = GP_ESTALE;
    }
    if (status == GP_ENOENT || status == GP_ESTALE)
        return gp_fail(err, GP_ESTALE, "the result '%s' was removed, or another process has it", key->name);
    return status;
}

gp_status result_end(result_store *store, const result_key *key, gp_status ended, const void *data,
                     size_t bytes, int64_t now_ms, gp_error *err)
{
    char draft[RESULT_DRAFT_BYTES];
    gp_error limit;
    result_totals sums;
    result_entry e;
    gp_status status = own_open(&e, store, key, err);

    if (status != GP_OK)
        return status;
    close(e.fd);

    /* Write without the lock, because the write may take long. */
    result_head head = e.head;

    if (ended == GP_OK && bytes > store->bytes_max) {
        gp_fail(&limit, GP_ELIMIT, "the result has %zu bytes; the maximum of a detached one is %" PRIu64,
                bytes, store->bytes_max);
        return result_end(store, key, GP_ELIMIT, limit.message, strlen(limit.message) + 1, now_ms, err);
    }
    head.state = RESULT_READY;
    head.status = (uint32_t)ended;
    head.bytes = bytes;
    head.ended_ms = now_ms;
    head.expires_ms = now_ms + head.ttl_ms;
    status = result_draft_write(store, &head, data, bytes, draft, err);
    if (status != GP_OK)
        return status;
    gp_fault_point("result-written");
    status = result_lock(store, &sums, err);
    if (status != GP_OK) {
        unlinkat(store->entries, draft, 0);
        return status;
    }
    bool exceeds = false;

    status = own_open(&e, store, key, err);
    if (status == GP_OK) {
        close(e.fd);
        if (ended == GP_OK)
            status = result_make_room(store, &sums, 0, bytes, now_ms, &limit);
        if (status != GP_OK)
            gp_fail(err, status, "%s", limit.message);
        exceeds = status == GP_ELIMIT;
    }
    if (status == GP_OK)
        status = result_draft_commit(store, &sums, draft, &head, &e.head, err);
    else
        unlinkat(store->entries, draft, 0);
    result_unlock(store, &sums);
    if (exceeds)
        return result_end(store, key, GP_ELIMIT, limit.message, strlen(limit.message) + 1, now_ms, err);
    return status;
}

gp_status result_release(result_store *store, const result_key *key, uint32_t starts, bool ended,
                         gp_error *err)
{
    result_totals sums;
    result_entry e;
    gp_status status = result_lock(store, &sums, err);

    if (status != GP_OK)
        return status;
    status = own_open(&e, store, key, err);
    if (status == GP_OK) {
        e.head.state = RESULT_RELEASED;
        e.head.starts += starts;
        e.head.owner.start_time = 0;
        if (ended)
            e.head.lease = 0;
        status = result_head_write(&e, err);
        close(e.fd);
    }
    result_unlock(store, &sums);
    return status;
}

/* Read the payload of an entry, and append a NUL. */
static gp_status payload_read(void **out, const result_entry *e, gp_error *err)
{
    char *data = gp_malloc(e->head.bytes + 1);

    if (data == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %" PRIu64 " bytes of '%s'", e->head.bytes,
                       e->head.key.name);
    if (gp_read_at(e->fd, data, e->head.bytes, sizeof(e->head)) != (ssize_t)e->head.bytes) {
        gp_free(data);
        return gp_fail_errno(err, GP_EIO, "cannot read the result '%s'", e->head.key.name);
    }
    data[e->head.bytes] = '\0';
    *out = data;
    return GP_OK;
}

gp_status result_claim(result_head *head, void **data, result_store *store, const char *name, uint64_t lease,
                       gp_error *err)
{
    result_totals sums;
    result_entry e;
    gp_status status = result_lock(store, &sums, err);

    if (status != GP_OK)
        return status;
    status = result_entry_open(&e, store, name, err);
    if (status == GP_OK) {
        void *argument = NULL;

        if (!result_is_abandoned(&e.head))
            status = gp_fail(err, GP_EBUSY, "the result '%s' is not abandoned", name);
        if (status == GP_OK)
            status = payload_read(&argument, &e, err);
        if (status == GP_OK) {
            e.head.starts += e.head.state == RESULT_PENDING;
            e.head.state = RESULT_PENDING;
            e.head.owner = result_self();
            e.head.lease = lease;
            status = result_head_write(&e, err);
        }
        close(e.fd);
        if (status == GP_OK) {
            *head = e.head;
            *data = argument;
        } else {
            gp_free(argument);
        }
    }
    result_unlock(store, &sums);
    return status;
}

gp_status result_remove(result_store *store, const char *name, gp_error *err)
{
    result_totals sums;
    result_entry e;
    gp_status status = result_name_check(name, err);

    if (status == GP_OK)
        status = result_lock(store, &sums, err);
    if (status != GP_OK)
        return status;
    bool known = result_entry_open(&e, store, name, NULL) == GP_OK;

    if (known)
        close(e.fd);
    if (unlinkat(store->entries, name, 0) == 0) {
        sums.count -= sums.count > 0;
        sums.bytes -= known && e.head.bytes <= sums.bytes ? e.head.bytes : 0;
    } else {
        status = errno == ENOENT
                     ? gp_fail(err, GP_ENOENT, "there is no result '%s'; 'gradpool results' lists them", name)
                     : gp_fail_errno(err, GP_EIO, "cannot remove the result '%s'", name);
    }
    result_unlock(store, &sums);
    return status;
}

gp_status result_prune(result_store *store, int64_t now_ms, gp_error *err)
{
    result_totals sums;
    gp_status status = result_lock(store, &sums, err);

    if (status == GP_OK) {
        status = result_scan(store, &sums, NULL, now_ms, err);
        result_unlock(store, &sums);
    }
    return status;
}

/* ---- reading ---- */

/* Return the error for an entry without a result. GP_EBUSY: not ended. GP_OK: it has one. */
static gp_status state_status(const result_head *head, gp_error *err)
{
    switch (head->state) {
    case RESULT_READY:
        return GP_OK;
    case RESULT_READ:
        return gp_fail(err, GP_ESTATE, "the result '%s' was read %" PRIu32 " time%s, as often as allowed",
                       head->key.name, head->reads, head->reads == 1 ? "" : "s");
    case RESULT_EXPIRED:
        if (head->ended_ms == 0)
            return gp_fail(err, GP_ESTALE, "the result '%s' expired: no process ran its call for 7 days",
                           head->key.name);
        return gp_fail(err, GP_ESTALE, "the result '%s' expired %" PRId64 " s after its call had ended",
                       head->key.name, head->ttl_ms / 1000);
    default:
        return gp_fail(err, GP_EBUSY, "the call of result '%s' has not ended", head->key.name);
    }
}

/* Count a read of the entry.
 *   replaced  set to whether the entry was replaced meanwhile; the read is then not counted
 * GP_EBUSY: another process holds the lock. */
static gp_status read_count(result_store *store, const result_entry *e, bool *replaced, int64_t now_ms,
                            gp_error *err)
{
    result_totals sums;
    result_entry now;
    gp_status status = result_lock(store, &sums, err);

    *replaced = false;
    if (status != GP_OK)
        return status;
    status = result_entry_open(&now, store, e->head.key.name, err);
    if (status == GP_OK) {
        if (now.info.st_ino != e->info.st_ino || now.info.st_dev != e->info.st_dev) {
            *replaced = true;
        } else if (++now.head.reads == now.head.reads_max && now.head.reads_max != 0) {
            status = result_bury(store, &sums, &now.head, RESULT_READ, now_ms, err);
        } else {
            status = result_head_write(&now, err);
        }
        close(now.fd);
    }
    result_unlock(store, &sums);
    return status;
}

/* Replace an expired entry by a tombstone, and set head->state to RESULT_EXPIRED. Other entries are
 * unchanged. */
static void expire(result_store *store, result_head *head, int64_t now_ms)
{
    result_totals sums;
    result_entry e;

    if (head->state >= RESULT_READ || !result_has_expired(head, now_ms))
        return;
    if (result_lock(store, &sums, NULL) == GP_OK) {
        if (result_entry_open(&e, store, head->key.name, NULL) == GP_OK) {
            close(e.fd);
            if (e.head.state < RESULT_READ && result_has_expired(&e.head, now_ms))
                result_bury(store, &sums, &e.head, RESULT_EXPIRED, now_ms, NULL);
        }
        result_unlock(store, &sums);
    }
    head->state = RESULT_EXPIRED;
}

gp_status result_get(result_store *store, const char *name, result_head *head, int64_t now_ms, gp_error *err)
{
    result_entry e;
    gp_status status = result_entry_open(&e, store, name, err);

    if (status != GP_OK)
        return status;
    close(e.fd);
    expire(store, &e.head, now_ms);
    *head = e.head;
    return GP_OK;
}

gp_status result_read(result_store *store, const char *name, gp_status *ended, void **data, size_t *bytes,
                      bool *pending, int64_t now_ms, gp_error *err)
{
    void *payload = NULL;
    bool replaced;
    gp_status status;
    result_entry e;

    *pending = false;
    do { /* read the payload before the read is counted; start over if another process replaced it */
        status = result_entry_open(&e, store, name, err);
        if (status != GP_OK)
            return status;
        expire(store, &e.head, now_ms);
        status = state_status(&e.head, err);
        *pending = status == GP_EBUSY;
        replaced = false;
        if (status == GP_OK)
            status = payload_read(&payload, &e, err);
        if (status == GP_OK) {
            status = read_count(store, &e, &replaced, now_ms, err);
            if (status != GP_OK || replaced)
                gp_free(payload);
        }
        close(e.fd);
    } while (replaced);
    if (status != GP_OK)
        return status;
    *ended = (gp_status)e.head.status;
    *data = payload;
    *bytes = e.head.bytes;
    return GP_OK;
}

gp_status result_each(result_store *store, bool (*visit)(void *context, const result_head *head),
                      void *context, int64_t now_ms, gp_error *err)
{
    int fd = openat(store->entries, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd >= 0 ? fdopendir(fd) : NULL;
    bool more = true;

    if (all == NULL) {
        if (fd >= 0)
            close(fd);
        return gp_fail_errno(err, GP_EIO, "cannot list %s", store->folder);
    }
    for (const struct dirent *file; more && (file = readdir(all)) != NULL;) {
        result_entry e;

        if (file->d_name[0] == '.' || result_entry_open(&e, store, file->d_name, NULL) != GP_OK)
            continue;
        close(e.fd);
        if (e.head.state < RESULT_READ && result_has_expired(&e.head, now_ms))
            e.head.state = RESULT_EXPIRED;
        more = visit(context, &e.head);
    }
    closedir(all);
    return GP_OK;
}

/* ---- watching ---- */

int result_watch(const result_store *store)
{
    char path[RESULT_FOLDER_BYTES + 16];
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    snprintf(path, sizeof(path), "%s/entries", store->folder);
    if (fd >= 0 && inotify_add_watch(fd, path, IN_MOVED_TO | IN_MODIFY | IN_DELETE) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* ---- the keeper ---- */

/* Try to lock the file of the keeper, with the store's lock held. *fd: -1 if another process is the
 * keeper. */
static gp_status keeper_lock(int *fd, const result_store *store, gp_error *err)
{
    int file = openat(store->directory, "keeper", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (file < 0)
        return gp_fail_errno(err, GP_EIO, "cannot open %s/keeper", store->folder);
    gp_status status = gp_file_lock(file);

    if (status != GP_OK && status != GP_EBUSY)
        gp_fail_errno(err, status, "cannot lock %s/keeper", store->folder);
    *fd = status == GP_OK ? file : -1;
    if (status != GP_OK)
        close(file);
    return status == GP_EBUSY ? GP_OK : status;
}

gp_status result_keeper_wanted(bool *wanted, result_store *store, int64_t now_ms, gp_error *err)
{
    result_totals sums;
    int fd = -1;
    gp_status status = result_lock(store, &sums, err);

    if (status != GP_OK)
        return status;
    status = keeper_lock(&fd, store, err);
    *wanted = fd >= 0 && (now_ms - sums.keeper_asked_ms >= KEEPER_ASKED_MS || now_ms < sums.keeper_asked_ms);
    if (*wanted)
        sums.keeper_asked_ms = now_ms;
    if (fd >= 0)
        close(fd);
    result_unlock(store, &sums);
    return status;
}

void result_keeper_missed(result_store *store)
{
    result_totals sums;

    if (result_lock(store, &sums, NULL) != GP_OK)
        return;
    sums.keeper_asked_ms = 0;
    result_unlock(store, &sums);
}

gp_status result_keeper_begin(int *fd, result_store *store, gp_error *err)
{
    result_totals sums;
    gp_status status = result_lock(store, &sums, err);

    if (status != GP_OK)
        return status;

    /* Lock the keeper file under the store's lock: result_keeper_wanted() holds the file's lock
     * briefly, and would look like another keeper. */
    status = keeper_lock(fd, store, err);
    sums.keeper_asked_ms = 0;
    result_unlock(store, &sums);
    return status;
}

bool result_keeper_end(int *fd, result_store *store, int64_t now_ms)
{
    char objects[RESULT_FOLDER_BYTES + 16];
    uint64_t live = 0;
    result_totals sums;
    DIR *all;

    if (result_lock(store, &sums, NULL) != GP_OK)
        return false;
    bool ends = result_scan(store, &sums, &live, now_ms, NULL) == GP_OK && live == 0;

    snprintf(objects, sizeof(objects), "%s/objects", store->folder);
    all = ends ? opendir(objects) : NULL;
    for (const struct dirent *file; all != NULL && (file = readdir(all)) != NULL;)
        if (file->d_name[0] != '.')
            unlinkat(dirfd(all), file->d_name, 0);
    if (all != NULL)
        closedir(all);
    if (ends) {
        close(*fd);
        *fd = -1;
        sums.keeper_asked_ms = 0;
    }
    result_unlock(store, &sums);
    return ends;
}
