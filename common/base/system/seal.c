/* Implement seal.h. */
#include "common/base/system/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/file.h"

/* retry interval and count for gp_seal() */
enum { AGAIN_MS = 10, AGAIN_MAX = 100, SEALS = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK };

int gp_seal(int fd, int seals)
{
    int sealed = fcntl(fd, F_ADD_SEALS, seals);

    for (int again = 0; sealed != 0 && errno == EBUSY && again < AGAIN_MAX; again++) {
        gp_sleep_ms(AGAIN_MS);
        sealed = fcntl(fd, F_ADD_SEALS, seals);
    }
    return sealed;
}

gp_status gp_seal_new(int *fd, const void *data, size_t bytes, gp_error *err)
{
    int made = memfd_create("gradpool-sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (made < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create %zu bytes of shared memory", bytes);
    if (!gp_write_all(made, data, bytes) || gp_seal(made, SEALS | F_SEAL_SEAL) != 0) {
        gp_status status = gp_fail_errno(err, GP_ENOMEM, "cannot copy %zu bytes to shared memory", bytes);

        close(made);
        return status;
    }
    *fd = made;
    return GP_OK;
}

gp_status gp_seal_map(const void **data, int fd, size_t bytes, gp_error *err)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;
    void *map;

    if (seals < 0 || (seals & SEALS) != SEALS)
        return gp_fail(err, GP_EPROTO, "shared memory is not sealed against writing and resizing (seals %d)",
                       seals);
    if (fstat(fd, &info) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot stat shared memory");
    if (info.st_size < 0 || (uint64_t)info.st_size != bytes)
        return gp_fail(err, GP_EPROTO, "shared memory has %lld bytes, must have %zu", (long long)info.st_size,
                       bytes);
    if (bytes == 0) {
        *data = NULL;
        return GP_OK;
    }

    /* Use a private mapping: Linux before 6.7 refuses a shared mapping of a file that is sealed
     * against writing. */
    map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return gp_fail_errno(err, GP_ENOMEM, "cannot map %zu bytes of shared memory", bytes);
    *data = map;
    return GP_OK;
}
