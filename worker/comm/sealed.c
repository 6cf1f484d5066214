/* Sealed memfds for shared memory. */
#include "worker/comm/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* added in Linux 5.14 */
#endif

enum { PAGE = 4096, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static uint8_t *page_of(uint8_t *at)
{
    return at - (uintptr_t)at % PAGE;
}

gp_status gp_sealed_take(uint8_t *map, size_t bytes, gp_error *err)
{
    uint8_t *from = page_of(map), *to = page_of(map + bytes + PAGE - 1);

    /* Linux before 5.14 returns EINVAL; pages are then allocated on first access. */
    if (madvise(from, (size_t)(to - from), MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
        return gp_fail_errno(err, GP_ENOMEM, "no memory for %zu shared bytes", bytes);
    return GP_OK;
}

void gp_sealed_give_back(uint8_t *map, size_t bytes)
{
    (void)madvise(page_of(map), bytes + (size_t)(map - page_of(map)), MADV_REMOVE);
}

gp_status gp_sealed_new(const char *name, size_t bytes, size_t present, int *fd, uint8_t **map, gp_error *err)
{
    gp_status status = GP_OK;
    uint8_t *at = NULL;
    int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (made < 0)
        return gp_fail_errno(err, GP_ENOMEM, "cannot create %zu bytes of shared memory", bytes);
    if (ftruncate(made, (off_t)bytes) != 0 || fcntl(made, F_ADD_SEALS, SEALS) != 0)
        status = gp_fail_errno(err, GP_ENOMEM, "cannot resize and seal %zu bytes of shared memory", bytes);
    if (status == GP_OK)
        status = gp_sealed_map(made, bytes, &at, err);
    if (status == GP_OK && present > 0)
        status = gp_sealed_take(at, present, err);
    if (status != GP_OK) {
        gp_sealed_unmap(at, bytes);
        close(made);
        return status;
    }
    *fd = made;
    *map = at;
    return GP_OK;
}

gp_status gp_sealed_map(int fd, size_t bytes, uint8_t **map, gp_error *err)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;
    void *at;

    if (seals < 0 || (seals & SEALS) != SEALS)
        return gp_fail(err, GP_EPROTO, "shared memory is not sealed against resizing (seals %d)", seals);
    if (fstat(fd, &info) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot stat shared memory");
    if (info.st_size < 0 || (uint64_t)info.st_size < bytes)
        return gp_fail(err, GP_EPROTO, "shared memory has %lld bytes, needs %zu", (long long)info.st_size,
                       bytes);
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return gp_fail_errno(err, GP_ENOMEM, "cannot map %zu bytes of shared memory", bytes);
    *map = at;
    return GP_OK;
}

void gp_sealed_populate(uint8_t *map, size_t bytes)
{
    (void)madvise(map, bytes, MADV_POPULATE_WRITE); /* only saves time; failure is harmless */
}

void gp_sealed_unmap(uint8_t *map, size_t bytes)
{
    if (map != NULL)
        munmap(map, bytes);
}
