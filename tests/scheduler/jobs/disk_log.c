#include "tests/scheduler/jobs/disk_log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILES_MAX = 64, NAMES_MAX = 8, FILE_BYTES_MAX = 8 << 20 };

typedef enum event_kind { CREATE, UNLINK, WRITE, TRUNCATE, SYNC, SYNC_FOLDER, MARK } event_kind;

typedef struct event {
    event_kind kind;
    uint32_t file, name;
    size_t at, bytes; /* data of WRITE; bytes: also the size of TRUNCATE */
    uint8_t *data;
} event;

typedef struct content {
    uint8_t *data; /* FILE_BYTES_MAX bytes, zero beyond `bytes` */
    size_t bytes;
} content;

static struct {
    pthread_mutex_t lock;
    char folder[200];
    ino_t folder_inode;
    int marks;
    event events[DISK_EVENTS_MAX];
    uint32_t count, last_mark;
    ino_t inodes[FILES_MAX]; /* the newest file with an inode number counts */
    uint32_t files;
    char names[NAMES_MAX][40];
    uint32_t name_count;
} disk_log = { .lock = PTHREAD_MUTEX_INITIALIZER, .marks = -1 };

/* ---- recording ---- */

static event *event_new(event_kind kind)
{
    if (disk_log.count == DISK_EVENTS_MAX)
        abort();
    disk_log.events[disk_log.count] = (event){ .kind = kind };
    return &disk_log.events[disk_log.count++];
}

static uint32_t name_of(const char *path)
{
    const char *name = path + strlen(disk_log.folder) + 1;
    uint32_t i = 0;

    while (i < disk_log.name_count && strcmp(disk_log.names[i], name) != 0)
        i++;
    if (i == NAMES_MAX || strlen(name) >= sizeof(disk_log.names[0]))
        abort();
    if (i == disk_log.name_count)
        strcpy(disk_log.names[disk_log.name_count++], name);
    return i;
}

static bool watched(const char *path)
{
    size_t bytes = strlen(disk_log.folder);

    return bytes > 0 && strncmp(path, disk_log.folder, bytes) == 0 && path[bytes] == '/';
}

/* Return the file number + 1. 0: not a file in the watched folder. */
static uint32_t file_of(int fd)
{
    struct stat facts;

    if (disk_log.folder[0] == '\0' || fstat(fd, &facts) != 0)
        return 0;
    for (uint32_t i = disk_log.files; i > 0; i--)
        if (disk_log.inodes[i - 1] == facts.st_ino && S_ISREG(facts.st_mode))
            return i;
    return 0;
}

static int open_recorded(const char *path, int flags, mode_t mode)
{
    if (!watched(path))
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    pthread_mutex_lock(&disk_log.lock);
    bool was = access(path, F_OK) == 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    struct stat facts;

    if (fd >= 0 && !was && fstat(fd, &facts) == 0) {
        event *made = event_new(CREATE);

        if (disk_log.files == FILES_MAX)
            abort();
        disk_log.inodes[disk_log.files] = facts.st_ino;
        made->file = disk_log.files++;
        made->name = name_of(path);
    }
    pthread_mutex_unlock(&disk_log.lock);
    return fd;
}

static ssize_t write_recorded(int fd, const void *data, size_t bytes, off_t at, bool here)
{
    pthread_mutex_lock(&disk_log.lock);
    uint32_t file = file_of(fd);

    if (file != 0 && here)
        at = lseek(fd, 0, SEEK_CUR);
    if (fd == disk_log.marks && bytes == sizeof(uint64_t)) {
        event_new(MARK);
        disk_log.last_mark = disk_log.count;
    }
    ssize_t done = here ? syscall(SYS_write, fd, data, bytes) : syscall(SYS_pwrite64, fd, data, bytes, at);

    if (file != 0 && done > 0) {
        event *made = event_new(WRITE);

        made->file = file - 1;
        made->at = (size_t)at;
        made->bytes = (size_t)done;
        made->data = malloc((size_t)done);
        if (made->data == NULL || made->at + made->bytes > FILE_BYTES_MAX)
            abort();
        memcpy(made->data, data, (size_t)done);
    }
    pthread_mutex_unlock(&disk_log.lock);
    return done;
}

static int truncate_recorded(int fd, off_t bytes)
{
    pthread_mutex_lock(&disk_log.lock);
    uint32_t file = file_of(fd);
    int failed = (int)syscall(SYS_ftruncate, fd, bytes);

    if (file != 0 && failed == 0) {
        event *made = event_new(TRUNCATE);

        made->file = file - 1;
        made->bytes = (size_t)bytes;
    }
    pthread_mutex_unlock(&disk_log.lock);
    return failed;
}

static int sync_recorded(int fd)
{
    struct stat facts;

    pthread_mutex_lock(&disk_log.lock);
    uint32_t file = file_of(fd);

    if (file != 0)
        event_new(SYNC)->file = file - 1;
    else if (disk_log.folder[0] != '\0' && fstat(fd, &facts) == 0 && facts.st_ino == disk_log.folder_inode)
        event_new(SYNC_FOLDER);
    pthread_mutex_unlock(&disk_log.lock);
    return 0; /* no real sync: power does not fail while the test runs */
}

/* ---- interposed C library calls ---- */

int open(const char *path, int flags, ...)
{
    va_list arguments;

    va_start(arguments, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;

    va_end(arguments);
    return open_recorded(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;

    va_start(arguments, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;

    va_end(arguments);
    return open_recorded(path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return write_recorded(fd, data, bytes, 0, true);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return write_recorded(fd, data, bytes, at, false);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at)
{
    return write_recorded(fd, data, bytes, at, false);
}

int ftruncate(int fd, off_t bytes)
{
    return truncate_recorded(fd, bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
    return truncate_recorded(fd, bytes);
}

int fsync(int fd)
{
    return sync_recorded(fd);
}

int fdatasync(int fd)
{
    return sync_recorded(fd);
}

int unlink(const char *path)
{
    if (!watched(path))
        return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    pthread_mutex_lock(&disk_log.lock);
    int failed = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);

    if (failed == 0)
        event_new(UNLINK)->name = name_of(path);
    pthread_mutex_unlock(&disk_log.lock);
    return failed;
}

/* ---- recorded events ---- */

void disk_log_watch(const char *folder)
{
    struct stat facts = { .st_ino = 0 };

    pthread_mutex_lock(&disk_log.lock);
    snprintf(disk_log.folder, sizeof(disk_log.folder), "%s", folder == NULL ? "" : folder);
    if (folder != NULL && stat(folder, &facts) != 0)
        abort();
    disk_log.folder_inode = facts.st_ino;
    disk_log.marks = -1;
    pthread_mutex_unlock(&disk_log.lock);
}

void disk_log_marks(int fd)
{
    pthread_mutex_lock(&disk_log.lock);
    disk_log.marks = fd;
    pthread_mutex_unlock(&disk_log.lock);
}

uint32_t disk_log_count(void)
{
    pthread_mutex_lock(&disk_log.lock);
    uint32_t count = disk_log.count;

    pthread_mutex_unlock(&disk_log.lock);
    return count;
}

uint32_t disk_log_last_mark(void)
{
    pthread_mutex_lock(&disk_log.lock);
    uint32_t mark = disk_log.last_mark;

    pthread_mutex_unlock(&disk_log.lock);
    return mark;
}

bool disk_log_is_sync(uint32_t i)
{
    return disk_log.events[i].kind == SYNC || disk_log.events[i].kind == SYNC_FOLDER;
}

bool disk_log_is_mark(uint32_t i)
{
    return disk_log.events[i].kind == MARK;
}

/* ---- disk model ---- */

static struct {
    content files[FILES_MAX], made[FILES_MAX];
    uint32_t names[NAMES_MAX], made_names[NAMES_MAX]; /* file + 1; 0: no such file */
    uint32_t pending[DISK_PENDING_MAX], pending_count, gone;
} disk;

void disk_log_free(void)
{
    for (uint32_t i = 0; i < disk_log.count; i++)
        free(disk_log.events[i].data);
    for (uint32_t i = 0; i < FILES_MAX; i++) {
        free(disk.files[i].data);
        free(disk.made[i].data);
    }
    memset(&disk, 0, sizeof(disk));
    disk_log.count = disk_log.last_mark = disk_log.files = disk_log.name_count = 0;
}

static void content_write(content *to, const uint8_t *data, size_t at, size_t bytes)
{
    memcpy(to->data + at, data, bytes);
    if (at + bytes > to->bytes)
        to->bytes = at + bytes;
}

/* Apply an event to the disk. sectors: mask of the sectors written; all ones: all sectors. */
static void apply(content *files, uint32_t *names, const event *e, uint64_t sectors)
{
    content *file = &files[e->file];

    if (e->kind == CREATE)
        names[e->name] = e->file + 1;
    else if (e->kind == UNLINK)
        names[e->name] = 0;
    if (e->kind != WRITE && e->kind != TRUNCATE)
        return;
    if (file->data == NULL && (file->data = calloc(1, FILE_BYTES_MAX)) == NULL)
        abort();
    if (e->kind == TRUNCATE) {
        if (e->bytes < file->bytes)
            memset(file->data + e->bytes, 0, file->bytes - e->bytes);
        file->bytes = e->bytes;
        return;
    }
    for (size_t done = 0, sector = 0; done < e->bytes; sector++) {
        size_t part = DISK_SECTOR - (e->at + done) % DISK_SECTOR;

        part = part < e->bytes - done ? part : e->bytes - done;
        if (sector >= 64 || (sectors >> sector & 1) != 0)
            content_write(file, e->data + done, e->at + done, part);
        done += part;
    }
}

/* Move the events covered by a sync to the durable state. */
static void settle(const event *sync)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < disk.pending_count; i++) {
        const event *e = &disk_log.events[disk.pending[i]];
        bool name = e->kind == CREATE || e->kind == UNLINK;

        if (sync->kind == SYNC_FOLDER ? name : !name && e->file == sync->file)
            apply(disk.files, disk.names, e, UINT64_MAX);
        else
            disk.pending[left++] = disk.pending[i];
    }
    disk.pending_count = left;
}

void disk_log_go(uint32_t count)
{
    for (; disk.gone < count; disk.gone++) {
        const event *e = &disk_log.events[disk.gone];

        if (e->kind == SYNC || e->kind == SYNC_FOLDER) {
            settle(e);
        } else if (e->kind != MARK) {
            if (disk.pending_count == DISK_PENDING_MAX)
                abort();
            disk.pending[disk.pending_count++] = disk.gone;
        }
    }
}

uint32_t disk_log_pending(void)
{
    return disk.pending_count;
}

uint32_t disk_log_sectors(uint32_t i)
{
    const event *e = &disk_log.events[disk.pending[i]];

    return e->kind != WRITE ? 0
                            : (uint32_t)((e->at % DISK_SECTOR + e->bytes + DISK_SECTOR - 1) / DISK_SECTOR);
}

uint64_t disk_log_image(const disk_image *image)
{
    uint64_t sum = 0xcbf29ce484222325;

    memcpy(disk.made_names, disk.names, sizeof(disk.names));
    for (uint32_t i = 0; i < disk_log.files; i++) {
        content *to = &disk.made[i];

        if (to->data == NULL && (to->data = calloc(1, FILE_BYTES_MAX)) == NULL)
            abort();
        memset(to->data, 0, to->bytes);
        to->bytes = disk.files[i].bytes;
        if (to->bytes > 0)
            memcpy(to->data, disk.files[i].data, to->bytes);
    }
    for (uint32_t i = 0; i < disk.pending_count; i++)
        if (image->kept[i] != 0)
            apply(disk.made, disk.made_names, &disk_log.events[disk.pending[i]],
                  image->torn == i ? image->sectors : UINT64_MAX);
    for (uint32_t n = 0; n < disk_log.name_count; n++) {
        const content *file = disk.made_names[n] == 0 ? NULL : &disk.made[disk.made_names[n] - 1];

        sum = (sum ^ (file == NULL ? n + 1 : 1000 + file->bytes)) * 0x100000001b3;
        /* zero beyond the end of the file */
        for (size_t i = 0; file != NULL && i < file->bytes; i += sizeof(uint64_t)) {
            uint64_t word;

            memcpy(&word, file->data + i, sizeof(word));
            sum = (sum ^ word) * 0x9e3779b97f4a7c15;
            sum ^= sum >> 29;
        }
    }
    return sum;
}

void disk_log_put(const char *folder)
{
    for (uint32_t n = 0; n < disk_log.name_count; n++) {
        char path[300];
        const content *file = disk.made_names[n] == 0 ? NULL : &disk.made[disk.made_names[n] - 1];

        snprintf(path, sizeof(path), "%s/%s", folder, disk_log.names[n]);
        unlink(path);
        if (file == NULL)
            continue;
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        if (fd < 0 || write(fd, file->data, file->bytes) != (ssize_t)file->bytes)
            abort();
        close(fd);
    }
}
