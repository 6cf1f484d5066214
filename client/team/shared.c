#include "client/team/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/system/forks.h"
#include "common/base/system/seal.h"
#include "proto/task/link.h"

#define SHARED_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

static _Atomic uint64_t numbers, left;

/* Eventfds of all open teams, written when a user frees a payload. */
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static int *watching;
static uint32_t watching_count;
static uint32_t watching_forks; /* gp_forks() of the process that filled the list */

uint64_t shared_left_count(void)
{
    return atomic_load_explicit(&left, memory_order_relaxed);
}

static gp_status shared_new(gp_broadcast **out, size_t bytes, gp_error *err)
{
    gp_broadcast *shared;

    if (bytes > GP_LINK_BLOB_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the payload has %zu bytes; the maximum is %llu", bytes,
                       (unsigned long long)GP_LINK_BLOB_BYTES_MAX);
    shared = gp_calloc(1, sizeof(*shared));
    if (shared == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a shared payload");
    shared->fd = memfd_create("gradpool-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (shared->fd < 0) {
        gp_status status =
            gp_fail_errno(err, GP_EIO, "cannot create a memory file for a payload of %zu bytes", bytes);

        gp_free(shared);
        return status;
    }
    shared->bytes = bytes;
    shared->number = atomic_fetch_add(&numbers, 1) + 1;
    atomic_init(&shared->users, 1);
    atomic_init(&shared->references, 1);
    *out = shared;
    return GP_OK;
}

static void shared_free(gp_broadcast *shared)
{
    if (shared->writing != NULL)
        munmap(shared->writing, shared->bytes);
    close(shared->fd);
    gp_free(shared);
}

/* Seal a payload if `status` is GP_OK, otherwise free it. */
static gp_status shared_finish(gp_broadcast **out, gp_broadcast *shared, gp_status status, gp_error *err)
{
    if (status == GP_OK)
        status = shared_seal(shared, err);
    if (status == GP_OK)
        *out = shared;
    else
        shared_free(shared);
    return status;
}

gp_status gp_broadcast_new(gp_broadcast **out, const void *data, size_t bytes, gp_error *err)
{
    gp_broadcast *shared;
    gp_status status = shared_new(&shared, bytes, err);

    if (status != GP_OK)
        return status;

    /* write() is faster than a copy into a mapping, which causes one page fault per page */
    if (!gp_write_all(shared->fd, data, bytes))
        status = gp_fail_errno(err, GP_ENOMEM, "cannot copy a payload of %zu bytes", bytes);
    return shared_finish(out, shared, status, err);
}

gp_status gp_broadcast_map(gp_broadcast **out, void **data, size_t bytes, gp_error *err)
{
    gp_broadcast *shared;
    gp_status status = shared_new(&shared, bytes, err);

    if (status != GP_OK)
        return status;
    if (ftruncate(shared->fd, (off_t)bytes) != 0)
        status = gp_fail_errno(err, GP_ENOMEM, "no memory for a payload of %zu bytes", bytes);
    if (status == GP_OK && bytes > 0) {
        shared->writing = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
        if (shared->writing == MAP_FAILED) {
            shared->writing = NULL;
            status = gp_fail_errno(err, GP_ENOMEM, "cannot map a payload of %zu bytes", bytes);
        }
    }
    if (status != GP_OK) {
        shared_free(shared);
        return status;
    }
    *data = shared->writing;
    *out = shared;
    return GP_OK;
}

gp_status shared_from_fd(gp_broadcast **out, int fd, size_t bytes, const char *path, gp_error *err)
{
    gp_broadcast *shared;
    gp_status status = shared_new(&shared, bytes, err);

    if (status != GP_OK)
        return status;
    for (size_t done = 0; status == GP_OK && done < bytes;) {
        ssize_t count = sendfile(shared->fd, fd, NULL, bytes - done);

        if (count > 0)
            done += (size_t)count;
        else if (count == 0)
            status = gp_fail(err, GP_EIO, "%s was truncated while it was read", path);
        else if (errno != EINTR)
            status = gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    }
    return shared_finish(out, shared, status, err);
}

gp_status shared_seal(gp_broadcast *shared, gp_error *err)
{
    int seals = fcntl(shared->fd, F_GET_SEALS);

    if (seals >= 0 && (seals & SHARED_SEALS) == SHARED_SEALS)
        return GP_OK;
    if (shared->writing != NULL)
        munmap(shared->writing, shared->bytes);
    shared->writing = NULL;
    return gp_seal(shared->fd, SHARED_SEALS) == 0 ? GP_OK
                                                  : gp_fail_errno(err, GP_EIO, "cannot seal a payload");
}

void shared_drop(gp_broadcast *shared)
{
    if (atomic_fetch_sub(&shared->references, 1) == 1)
        shared_free(shared);
}

void shared_leave(gp_broadcast *shared)
{
    if (shared == NULL || atomic_fetch_sub(&shared->users, 1) != 1)
        return;
    atomic_fetch_add(&left, 1);
    shared_drop(shared);
}

gp_status shared_watch(int fd, gp_error *err)
{
    gp_status status = GP_OK;
    int *grown;

    pthread_mutex_lock(&watch_lock);
    if (watching_forks != gp_forks()) /* the list contains teams of the parent process */
        watching_count = 0;
    watching_forks = gp_forks();
    grown = gp_array_grow(watching, watching_count, sizeof(*grown));
    if (grown == NULL) {
        status = gp_fail(err, GP_ENOMEM, "no memory to watch %u descriptors", watching_count + 1);
    } else {
        watching = grown;
        watching[watching_count++] = fd;
    }
    pthread_mutex_unlock(&watch_lock);
    return status;
}

void shared_unwatch(int fd)
{
    pthread_mutex_lock(&watch_lock);
    for (uint32_t i = 0; i < watching_count; i++)
        if (watching[i] == fd) {
            watching[i] = watching[--watching_count];
            break;
        }
    if (watching_count == 0) {
        gp_free(watching);
        watching = NULL;
    }
    pthread_mutex_unlock(&watch_lock);
}

/* Free a payload and wake all teams, even those without an active call, so that they release it on
 * their workers. */
void gp_broadcast_free(gp_broadcast *shared)
{
    uint64_t before = shared_left_count();

    shared_leave(shared);

    /* calls still use the payload and release it at their end, or the teams belong to the parent
     * process */
    if (shared_left_count() == before || watching_forks != gp_forks())
        return;
    pthread_mutex_lock(&watch_lock);
    for (uint32_t i = 0; i < watching_count; i++)
        eventfd_write(watching[i], 1);
    pthread_mutex_unlock(&watch_lock);
}
