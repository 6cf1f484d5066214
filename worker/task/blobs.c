#include "worker/task/blobs.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/file.h"
#include "proto/local/control_socket.h"
#include "proto/task/task_wire.h"

enum {
    ARRIVE_MS = 60000, /* time limit for one pass of control, which may have to wait for a core */
    SEND_SLICE_MS = 50,
};

typedef struct blob {
    int fd;
    uint64_t bytes;
    void *map; /* NULL: not mapped yet */
} blob;

struct gp_blobs {
    int control_socket;
    gp_mailbox *mailbox;
    uint64_t sent; /* number of the last blob sent; used by compute only */
    atomic_bool closed;

    pthread_mutex_t lock;
    pthread_cond_t came;
    uint64_t looks_begun, looks_ended; /* passes of control over all events of the control socket */
    uint32_t count;
    uint64_t numbers[GP_LINK_BLOBS_MAX]; /* separate array, because it is searched */
    blob blobs[GP_LINK_BLOBS_MAX];
};

gp_status gp_blobs_new(gp_blobs **out, int control_socket, gp_mailbox *mailbox, gp_error *err)
{
    gp_blobs *b = gp_calloc(1, sizeof(*b));

    if (b == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the blobs of a link");
    b->mailbox = mailbox;
    b->control_socket = fcntl(control_socket, F_DUPFD_CLOEXEC, 0);
    if (b->control_socket < 0) {
        gp_free(b);
        return gp_fail_errno(err, GP_EIO, "cannot duplicate the connection of a link");
    }
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->came, NULL);
    *out = b;
    return GP_OK;
}

static void blob_close(blob *gone)
{
    if (gone->map != NULL)
        munmap(gone->map, gone->bytes);
    if (gone->fd >= 0)
        close(gone->fd);
}

void gp_blobs_free(gp_blobs *b)
{
    if (b == NULL)
        return;
    for (uint32_t i = 0; i < b->count; i++)
        blob_close(&b->blobs[i]);
    close(b->control_socket);
    pthread_cond_destroy(&b->came);
    pthread_mutex_destroy(&b->lock);
    gp_free(b);
}

/* ---- control ---- */

static blob *blob_here(gp_blobs *b, uint64_t number)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (b->numbers[i] == number)
            return &b->blobs[i];
    return NULL;
}

gp_status gp_blobs_add(gp_blobs *b, uint64_t number, int fd, gp_error *err)
{
    gp_status status = GP_OK;

    pthread_mutex_lock(&b->lock);
    if (number == 0 || fd < 0 || blob_here(b, number) != NULL) {
        status = gp_fail(err, GP_EPROTO, "malformed blob %llu: %s", (unsigned long long)number,
                         number == 0 ? "no number"
                         : fd < 0    ? "no descriptor"
                                     : "duplicate number");
    } else if (b->count == GP_LINK_BLOBS_MAX) {
        status = gp_fail(err, GP_ELIMIT, "the client exceeded its limit of %d blobs", GP_LINK_BLOBS_MAX);
    } else {
        b->numbers[b->count] = number;
        b->blobs[b->count++] = (blob){ .fd = fd };
    }
    pthread_cond_signal(&b->came);
    pthread_mutex_unlock(&b->lock);
    if (status != GP_OK && fd >= 0)
        close(fd);
    return status;
}

void gp_blobs_look_begin(gp_blobs *b)
{
    pthread_mutex_lock(&b->lock);
    b->looks_begun++;
    pthread_mutex_unlock(&b->lock);
}

void gp_blobs_look_end(gp_blobs *b)
{
    pthread_mutex_lock(&b->lock);
    b->looks_ended = b->looks_begun;
    pthread_cond_signal(&b->came);
    pthread_mutex_unlock(&b->lock);
}

void gp_blobs_close(gp_blobs *b)
{
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->closed, true);
    pthread_cond_signal(&b->came);
    pthread_mutex_unlock(&b->lock);
}

/* ---- compute: received blobs; the caller holds the lock ---- */

/* Find a blob, which stays valid until compute releases it. NULL: error. A descriptor sent
 * before the current record is found by any pass that starts now, so one complete pass is
 * enough. */
static blob *blob_find(gp_blobs *b, uint64_t number, gp_error *err)
{
    int64_t deadline = gp_now_ns() + (int64_t)ARRIVE_MS * 1000000;
    struct timespec until = { .tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000 };
    uint64_t before = b->looks_begun;
    blob *found = blob_here(b, number);
    int late = 0;

    if (found == NULL)
        gp_mailbox_wake(b->mailbox);
    while (found == NULL && b->looks_ended <= before && late == 0 && !atomic_load(&b->closed)) {
        late = pthread_cond_clockwait(&b->came, &b->lock, CLOCK_MONOTONIC, &until);
        found = blob_here(b, number);
    }
    if (found == NULL && atomic_load(&b->closed))
        gp_fail(err, GP_ECANCELED, "the link was closed");
    else if (found == NULL)
        gp_fail(err, GP_EPROTO, "blob %llu was not received", (unsigned long long)number);
    return found;
}

static gp_status blob_map(blob *found, uint64_t number, uint64_t bytes, gp_error *err)
{
    struct stat info;
    int seals;

    if (found->map == NULL) {
        seals = fcntl(found->fd, F_GET_SEALS);
        if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(found->fd, &info) != 0)
            return gp_fail(err, GP_EPROTO, "blob %llu is not sealed against shrinking",
                           (unsigned long long)number);
        if ((uint64_t)info.st_size < bytes || (uint64_t)info.st_size > GP_LINK_BLOB_BYTES_MAX)
            return gp_fail(err, GP_EPROTO, "blob %llu has %lld bytes, must have %llu",
                           (unsigned long long)number, (long long)info.st_size, (unsigned long long)bytes);
        /* MAP_PRIVATE, because older kernels refuse a shared mapping of a file sealed against
         * writing. */
        found->map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, found->fd, 0);
        if (found->map == MAP_FAILED) {
            found->map = NULL;
            return gp_fail_errno(err, GP_ENOMEM, "cannot map blob %llu of %lld bytes",
                                 (unsigned long long)number, (long long)info.st_size);
        }
        found->bytes = (uint64_t)info.st_size;
    }
    if (found->bytes < bytes)
        return gp_fail(err, GP_EPROTO, "blob %llu has %llu bytes, must have %llu", (unsigned long long)number,
                       (unsigned long long)found->bytes, (unsigned long long)bytes);
    return GP_OK;
}

gp_status gp_blobs_map(gp_blobs *b, uint64_t number, uint64_t bytes, const void **data, gp_error *err)
{
    gp_status status;
    blob *found;

    *data = NULL;
    pthread_mutex_lock(&b->lock);
    found = blob_find(b, number, err);
    status = found == NULL ? err->code : bytes == 0 ? GP_OK : blob_map(found, number, bytes, err);
    if (status == GP_OK && bytes != 0)
        *data = found->map;
    pthread_mutex_unlock(&b->lock);
    return status;
}

gp_status gp_blobs_file(gp_blobs *b, uint64_t number, int *fd, gp_error *err)
{
    gp_status status = GP_OK;
    blob *found;

    pthread_mutex_lock(&b->lock);
    found = blob_find(b, number, err);
    if (found == NULL)
        status = err->code;
    else if ((*fd = fcntl(found->fd, F_DUPFD_CLOEXEC, 0)) < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot keep blob %llu", (unsigned long long)number);
    pthread_mutex_unlock(&b->lock);
    return status;
}

void gp_blobs_release(gp_blobs *b, uint64_t number)
{
    blob gone = { .fd = -1 };
    gp_error err;
    blob *found;

    pthread_mutex_lock(&b->lock);
    found = blob_find(b, number, &err);
    if (found != NULL) {
        gone = *found;
        b->count--;
        *found = b->blobs[b->count];
        b->numbers[found - b->blobs] = b->numbers[b->count];
    }
    pthread_mutex_unlock(&b->lock);

    /* after the unlock: unmapping a large file is slow, and control must not wait */
    blob_close(&gone);
}

/* ---- compute: sent blobs ---- */

gp_status gp_blob_file_new(int *out, gp_error *err)
{
    int fd = memfd_create("gradpool-blob", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create shared memory for a result");
    *out = fd;
    return GP_OK;
}

gp_status gp_blob_file_of(const void *data, size_t bytes, int *out, gp_error *err)
{
    int fd;
    gp_status status = gp_blob_file_new(&fd, err);

    if (status != GP_OK)
        return status;
    if (!gp_write_all(fd, data, bytes)) {
        status = gp_fail_errno(err, GP_ENOMEM, "no memory for a result of %zu bytes", bytes);
        close(fd);
        return status;
    }
    *out = fd;
    return GP_OK;
}

gp_status gp_blobs_send(gp_blobs *b, int fd, uint64_t *number, gp_error *err)
{
    gp_control_socket_request request = { .what = GP_CONTROL_SOCKET_BLOB, .lease = b->sent + 1 };
    gp_status status;

    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    while ((status = gp_control_socket_send_fd(b->control_socket, &request, fd, err)) == GP_EBUSY) {
        struct pollfd room = { .fd = b->control_socket, .events = POLLOUT };

        if (atomic_load(&b->closed))
            return gp_fail(err, GP_ECANCELED, "the link was closed");
        poll(&room, 1, SEND_SLICE_MS);
    }
    if (status != GP_OK)
        return status;
    *number = ++b->sent;
    return GP_OK;
}
