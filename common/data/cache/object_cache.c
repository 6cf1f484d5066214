/* Disk cache for immutable objects, shared by all processes of a user. See object_cache.h. */
#include "common/data/cache/object_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/cached.h"
#include "common/base/clock.h"
#include "common/base/memory/crc32c.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/base/text/log.h"

enum {
    CHUNK = 64 << 10, /* unit of the checksums: a part of an entry can be verified alone */
    CHUNKS = GP_OBJECT_BLOCK_BYTES / CHUNK,
    TOUCH_SECONDS = 60,
    /* age after which an unfinished file is assumed to belong to a process that exited */
    ABANDONED_SECONDS = 3600,
    FOLDERS = 256,
    EVICTIONS_MAX = 4,
    LOCK_TRIES = 16,   /* retries; each follows a rename of the file by another process */
    WRITER_MS = 30000, /* timeout for a writer that makes no progress */
    WRITER_POLL_MS = 5,
};

/* File header of a block entry; the data follows. */
typedef struct entry_head {
    char magic[8];
    uint64_t bytes;
    uint32_t sums[CHUNKS];
    char unused[240]; /* pads the header to 512 bytes */
} entry_head;

struct gp_object_cache {
    char path[PATH_MAX - 128]; /* leaves room for entry names */
    uint64_t bytes_max;
    _Atomic uint64_t *used; /* total size of all entries; in a file mapped by all processes */
    int lock;               /* lock file for eviction */
    _Atomic uint32_t sequence;
};

static const char entry_magic[8] = "gpobj 1";

/* ---- opening ---- */

gp_object_cache *gp_object_cache_open(const char *name, uint64_t bytes_max)
{
    gp_object_cache *cache = bytes_max == 0 ? NULL : gp_calloc(1, sizeof(*cache));
    char path[PATH_MAX + 16];
    int used = -1;

    if (cache == NULL)
        return NULL;
    cache->lock = -1;
    cache->bytes_max = bytes_max;
    if (gp_cache_path(cache->path, sizeof(cache->path), name, NULL, NULL) == GP_OK) {
        /* an error shows when the files are opened */
        (void)gp_directory_make(cache->path, 0700, NULL);
        snprintf(path, sizeof(path), "%s/used", cache->path);
        used = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        snprintf(path, sizeof(path), "%s/lock", cache->path);
        cache->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    cache->used = MAP_FAILED;
    if (used >= 0 && cache->lock >= 0 && ftruncate(used, sizeof(*cache->used)) == 0)
        cache->used = mmap(NULL, sizeof(*cache->used), PROT_READ | PROT_WRITE, MAP_SHARED, used, 0);
    if (used >= 0)
        close(used);
    if (cache->used == MAP_FAILED) {
        gp_log(GP_LOG_WARN, "cache-unusable", "cannot create the %s cache on disk '%s': %s", name,
               cache->path,
               cache->path[0] == '\0' ? "neither XDG_CACHE_HOME nor HOME is set" : strerror(errno));
        cache->used = NULL;
        gp_object_cache_close(cache);
        return NULL;
    }
    return cache;
}

void gp_object_cache_close(gp_object_cache *cache)
{
    if (cache == NULL)
        return;
    if (cache->used != NULL)
        munmap((void *)cache->used, sizeof(*cache->used));
    if (cache->lock >= 0)
        close(cache->lock);
    gp_free(cache);
}

uint64_t gp_object_cache_used(const gp_object_cache *cache)
{
    return cache == NULL ? 0 : atomic_load(cache->used);
}

/* ---- reading ---- */

static void entry_path(const gp_object_cache *cache, const gp_object_id *id, const char *ending,
                       char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%.2s/%s%s", cache->path, id->text, id->text + 2, ending);
}

static bool read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    return gp_read_at(fd, to, bytes, at) == (ssize_t)bytes;
}

/* Update the time of last use, with a resolution of one minute to avoid frequent writes. */
static void entry_touch(int fd, const struct stat *stat_)
{
    if (time(NULL) - stat_->st_mtim.tv_sec > TOUCH_SECONDS)
        (void)futimens(fd, NULL);
}

/* Append a part of an entry to `out`, after verifying the chunks that it touches. GP_ECORRUPT: the
 * entry is damaged. GP_ENOMEM, GP_ELIMIT: `out` has no room; the entry may be intact. */
static gp_status part_read(int fd, const entry_head *head, uint64_t offset, size_t bytes, gp_buffer *out)
{
    uint64_t first = offset / CHUNK * CHUNK, end = (offset + bytes + CHUNK - 1) / CHUNK * CHUNK;
    size_t before = out->bytes;
    uint8_t *chunk;

    end = end < head->bytes ? end : head->bytes;
    gp_status status = gp_buffer_reserve(out, end - first, NULL);

    if (status != GP_OK)
        return status;
    chunk = out->data + before;
    if (!read_at(fd, chunk, end - first, sizeof(*head) + first))
        return GP_ECORRUPT;
    for (uint64_t at = first; at < end; at += CHUNK) {
        size_t length = end - at < CHUNK ? end - at : CHUNK;

        if (gp_crc32c(0, chunk + (at - first), length) != head->sums[at / CHUNK])
            return GP_ECORRUPT;
    }
    memmove(chunk, chunk + (offset - first), bytes);
    out->bytes = before + bytes;
    out->data[out->bytes] = '\0';
    return GP_OK;
}

bool gp_object_cache_get(gp_object_cache *cache, const gp_object_id *id, uint64_t offset, size_t bytes,
                         gp_buffer *out)
{
    char path[PATH_MAX];
    struct stat stat_;
    entry_head head;
    bool sound, found = false;
    int fd;

    if (cache == NULL)
        return false;
    entry_path(cache, id, "", path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    sound = fstat(fd, &stat_) == 0 && read_at(fd, &head, sizeof(head), 0) &&
            memcmp(head.magic, entry_magic, sizeof(entry_magic)) == 0 &&
            head.bytes <= GP_OBJECT_BLOCK_BYTES && (uint64_t)stat_.st_size == sizeof(head) + head.bytes;
    if (sound && offset <= head.bytes && bytes <= head.bytes - offset) {
        gp_status status = part_read(fd, &head, offset, bytes, out);

        found = status == GP_OK;
        sound = status != GP_ECORRUPT;
        if (found)
            entry_touch(fd, &stat_);
    }
    if (!sound)
        unlink(path);
    close(fd);
    return found;
}

/* ---- eviction ---- */

typedef struct used_entry {
    int64_t when; /* time of last use in ns */
    uint64_t bytes;
    uint32_t name; /* offset of the path in `text` */
} used_entry;

typedef struct used_list {
    used_entry *entries;
    uint32_t count;
    gp_buffer text;
    uint64_t bytes;
} used_list;

static bool used_add(used_list *list, const char *path, const struct stat *stat_)
{
    used_entry *grown = gp_array_grow(list->entries, list->count, sizeof(*grown));

    if (grown == NULL)
        return false;
    list->entries = grown;
    list->entries[list->count] =
        (used_entry){ .when = stat_->st_mtim.tv_sec * INT64_C(1000000000) + stat_->st_mtim.tv_nsec,
                      .bytes = (uint64_t)stat_->st_blocks * 512,
                      .name = (uint32_t)list->text.bytes };
    list->bytes += list->entries[list->count].bytes;
    return gp_buffer_append(&list->text, path, strlen(path) + 1, NULL) == GP_OK &&
           ++list->count < UINT32_MAX / 2;
}

/* Add all entries in a directory to the list, and remove abandoned unfinished files. Return false
 * if memory runs out. */
static bool folder_scan(used_list *list, const char *folder)
{
    DIR *directory = opendir(folder);
    time_t now = time(NULL);
    struct dirent *entry;
    bool good = true;

    while (directory != NULL && good && (entry = readdir(directory)) != NULL) {
        char path[PATH_MAX];
        struct stat stat_;

        if (entry->d_name[0] == '.' ||
            (size_t)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= sizeof(path) ||
            lstat(path, &stat_) != 0)
            continue;
        if (strchr(entry->d_name, '~') != NULL) { /* unfinished */
            if (now - stat_.st_mtim.tv_sec > ABANDONED_SECONDS)
                unlink(path);
            continue;
        }
        good = used_add(list, path, &stat_);
    }
    if (directory != NULL)
        closedir(directory);
    return good;
}

static int used_compare(const void *left, const void *right)
{
    const used_entry *a = left, *b = right;

    return a->when < b->when ? -1 : a->when > b->when;
}

/* Remove least recently used entries until 90 % of the limit remains. Call with the lock held.
 * Bytes that other processes add meanwhile stay counted. */
static void evict_once(gp_object_cache *cache)
{
    used_list list = { .entries = NULL };
    uint64_t wanted = cache->bytes_max / 10 * 9, before = atomic_load(cache->used);
    bool good = true;

    gp_buffer_init(&list.text, UINT32_MAX / 2);
    for (int i = 0; i < FOLDERS && good; i++) {
        char folder[PATH_MAX];

        snprintf(folder, sizeof(folder), "%s/%02x", cache->path, i);
        good = folder_scan(&list, folder);
    }
    if (list.count > 1)
        qsort(list.entries, list.count, sizeof(*list.entries), used_compare);
    for (uint32_t i = 0; i < list.count && list.bytes > wanted; i++)
        if (unlink((const char *)list.text.data + list.entries[i].name) == 0 || errno == ENOENT)
            list.bytes -= list.entries[i].bytes;
    atomic_fetch_add(cache->used, list.bytes - before); /* wraps modulo 2^64 if negative */
    gp_buffer_deinit(&list.text);
    gp_free(list.entries);
}

/* ---- adding ---- */

/* Create a file, and the directory if necessary. */
static int file_make(char path[PATH_MAX], int flags)
{
    int fd = open(path, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    char *slash = strrchr(path, '/');

    if (fd >= 0 || errno != ENOENT)
        return fd;
    *slash = '\0';
    (void)mkdir(path, 0700);
    *slash = '/';
    return open(path, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Rename a finished file to its final name, unless another process has already published the
 * entry. */
static bool entry_publish(gp_object_cache *cache, int fd, const char *temporary, const char *path)
{
    struct stat stat_;

    if (fstat(fd, &stat_) != 0 || !gp_rename_new(temporary, path)) {
        unlink(temporary);
        return false;
    }
    if (atomic_fetch_add(cache->used, (uint64_t)stat_.st_blocks * 512) + (uint64_t)stat_.st_blocks * 512 >
        cache->bytes_max) {
        /* One process evicts at a time. Check the total again afterwards, because other
         * processes may have added entries meanwhile. */
        if (gp_file_lock(cache->lock) != GP_OK)
            return true;
        for (int i = 0; i < EVICTIONS_MAX && atomic_load(cache->used) > cache->bytes_max; i++)
            evict_once(cache);
        (void)flock(cache->lock, LOCK_UN);
    }
    return true;
}

void gp_object_cache_put(gp_object_cache *cache, const gp_object_id *id, const void *data, size_t bytes)
{
    char path[PATH_MAX], temporary[PATH_MAX], ending[40];
    entry_head head = { .bytes = bytes };
    int fd;

    if (cache == NULL || bytes > GP_OBJECT_BLOCK_BYTES || bytes > cache->bytes_max / 2)
        return;
    memcpy(head.magic, entry_magic, sizeof(entry_magic));
    for (size_t at = 0; at < bytes; at += CHUNK)
        head.sums[at / CHUNK] =
            gp_crc32c(0, (const uint8_t *)data + at, bytes - at < CHUNK ? bytes - at : (size_t)CHUNK);
    snprintf(ending, sizeof(ending), "~%d.%u", (int)getpid(), atomic_fetch_add(&cache->sequence, 1));
    entry_path(cache, id, "", path);
    entry_path(cache, id, ending, temporary);
    fd = file_make(temporary, O_WRONLY | O_EXCL);
    if (fd < 0)
        return;
    if (gp_write_all(fd, &head, sizeof(head)) && gp_write_all(fd, data, bytes))
        entry_publish(cache, fd, temporary, path);
    else
        unlink(temporary);
    close(fd);
}

/* Lock a file that another process may be writing. GP_EBUSY: that process has held the lock for
 * WRITER_MS without writing; it may be suspended. */
static gp_status writer_wait(int fd)
{
    struct stat seen = { 0 }, now;
    int64_t deadline_ms = 0;
    gp_status status;

    while ((status = gp_file_lock(fd)) == GP_EBUSY) {
        if (fstat(fd, &now) == 0 && (deadline_ms == 0 || now.st_blocks != seen.st_blocks ||
                                     memcmp(&now.st_mtim, &seen.st_mtim, sizeof(now.st_mtim)) != 0))
            deadline_ms = gp_now_ms() + WRITER_MS;
        seen = now;
        if (gp_now_ms() >= deadline_ms)
            break;
        gp_sleep_ms(WRITER_POLL_MS);
    }
    return status;
}

int gp_object_cache_file(gp_object_cache *cache, const gp_object_id *id, uint64_t bytes, bool *mine)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    struct stat stat_, named;

    if (cache == NULL || bytes > cache->bytes_max / 2)
        return -1;
    entry_path(cache, id, ".whole", path);
    entry_path(cache, id, ".whole~", temporary);
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        *mine = false;
        if (fd >= 0 && fstat(fd, &stat_) == 0 && (uint64_t)stat_.st_size == bytes) {
            entry_touch(fd, &stat_);
            return fd;
        }
        if (fd >= 0) {
            close(fd);
            unlink(path);
        }
        fd = file_make(temporary, O_RDWR);
        if (fd < 0)
            return -1;

        /* The previous lock holder may have renamed the file, so the name may be free or belong to
         * another file. On file systems without locks, two processes may write the same file. They
         * write identical bytes, because the id includes the object's version. */
        if (writer_wait(fd) != GP_OK) {
            close(fd);
            return -1;
        }
        if (fstat(fd, &stat_) == 0 && stat(temporary, &named) == 0 && named.st_ino == stat_.st_ino) {
            *mine = true;
            return ftruncate(fd, (off_t)bytes) == 0 ? fd : (close(fd), -1);
        }
        close(fd);
    }
    return -1;
}

bool gp_object_cache_commit(gp_object_cache *cache, const gp_object_id *id, int fd, uint64_t bytes)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    struct stat stat_;
    bool published;

    entry_path(cache, id, ".whole", path);
    entry_path(cache, id, ".whole~", temporary);
    published = fsync(fd) == 0 && fstat(fd, &stat_) == 0 && (uint64_t)stat_.st_size == bytes &&
                entry_publish(cache, fd, temporary, path);

    /* Unlock explicitly. A mapping made from fd would keep the lock after fd is closed, and block
     * the processes that wait for this entry. */
    (void)flock(fd, LOCK_UN);
    return published;
}

void gp_object_cache_discard(gp_object_cache *cache, const gp_object_id *id, bool mine)
{
    char path[PATH_MAX];

    entry_path(cache, id, mine ? ".whole~" : ".whole", path);
    unlink(path);
}
