#include "worker/task/results.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/task/task_wire.h"

void gp_memory_close(gp_memory *memory)
{
    if (memory->map != NULL)
        munmap(memory->map, memory->bytes);
    if (memory->fd >= 0)
        close(memory->fd);
    *memory = (gp_memory){ .fd = -1 };
}

void gp_results_deinit(gp_results *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        gp_memory_close(&r->kept[i]);
    r->count = 0;
    r->bytes = 0;
}

/* ---- reuse ---- */

static gp_memory kept_remove(gp_results *r, uint32_t place)
{
    gp_memory removed = r->kept[place];

    r->bytes -= removed.bytes;
    r->count--;
    memmove(&r->kept[place], &r->kept[place + 1], (r->count - place) * sizeof(r->kept[0]));
    return removed;
}

/* ---- creation ---- */

/* Open the file again, as another open file description. -1: failed. */
static int file_again(int fd, int flags)
{
    char path[40];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

gp_status gp_results_take(gp_results *r, size_t bytes, gp_memory *out, gp_error *err)
{
    gp_memory fresh = { .fd = -1, .bytes = bytes, .clean = true };
    gp_status status;
    int again;

    for (uint32_t i = 0; i < r->count; i++) {
        int fd = r->kept[i].fd;

        /* A kept file must be large enough, at most 25 % larger than needed, and held by this
         * process alone. */
        if (r->kept[i].bytes < bytes || r->kept[i].bytes - bytes > bytes / 4 ||
            fcntl(fd, F_SETLEASE, F_WRLCK) != 0)
            continue;
        fcntl(fd, F_SETLEASE, F_UNLCK);
        *out = kept_remove(r, i);
        out->clean = false;
        return GP_OK;
    }
    if (bytes > GP_LINK_BLOB_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the result has %zu bytes, at most %llu are allowed", bytes,
                       (unsigned long long)GP_LINK_BLOB_BYTES_MAX);
    status = gp_blob_file_new(&fresh.fd, err);
    if (status != GP_OK)
        return status;
    /* Reopen the file for writing. The kernel does not count the descriptor from memfd_create()
     * as a writer, and a lease needs that count. If this fails, the file is not reused. */
    again = file_again(fresh.fd, O_RDWR);
    if (again >= 0) {
        close(fresh.fd);
        fresh.fd = again;
    }
    if (ftruncate(fresh.fd, (off_t)bytes) == 0 &&
        fcntl(fresh.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        fresh.map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fresh.fd, 0);
    if (fresh.map == NULL || fresh.map == MAP_FAILED) {
        fresh.map = NULL;
        status = gp_fail_errno(err, GP_ENOMEM, "no memory for a result of %zu bytes", bytes);
        gp_memory_close(&fresh);
        return status;
    }
    *out = fresh;
    return GP_OK;
}

/* ---- sending ---- */

gp_status gp_results_send(gp_results *r, gp_memory *memory, gp_blobs *blobs, uint64_t *number, gp_error *err)
{
    int reader = file_again(memory->fd, O_RDONLY);
    gp_status status = gp_blobs_send(blobs, reader >= 0 ? reader : memory->fd, number, err);

    if (status == GP_OK && reader >= 0 && memory->bytes <= GP_RESULTS_BYTES_KEPT) {
        while (r->count == GP_RESULTS_KEPT ||
               (r->count > 0 && r->bytes + memory->bytes > GP_RESULTS_BYTES_KEPT)) {
            gp_memory oldest = kept_remove(r, 0);

            gp_memory_close(&oldest);
        }
        r->kept[r->count++] = *memory;
        r->bytes += memory->bytes;
    } else {
        gp_memory_close(memory);
    }
    *memory = (gp_memory){ .fd = -1 };
    if (reader >= 0)
        close(reader);
    return status;
}
