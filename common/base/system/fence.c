/* Implement fence.h. */
#include "common/base/system/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/system/file.h"

enum { NUMBER_BYTES = 16, TRIES = 3 };

/* Parse a positive decimal number that ends at `end`. 0: malformed or too large. */
static uint32_t parse(const char *text, char end, const char **rest)
{
    char *at;
    unsigned long number;

    if (text[0] < '1' || text[0] > '9')
        return 0;
    errno = 0;
    number = strtoul(text, &at, 10);
    if (errno != 0 || number > UINT32_MAX || *at != end)
        return 0;
    *rest = at;
    return (uint32_t)number;
}

gp_status gp_fence_open(gp_fence *out, gp_error *err)
{
    const char *value = getenv(GP_FENCE_VARIABLE), *rest = NULL;
    gp_fence fence = { 0 };

    if (value != NULL && value[0] != '\0') {
        fence.number = parse(value, ':', &rest);
        if (fence.number == 0 || rest[1] != '/' ||
            (size_t)snprintf(fence.file, sizeof(fence.file), "%s", rest + 1) >= sizeof(fence.file))
            return gp_fail(err, GP_EINVAL, "%s is '%.80s'; it must be NUMBER:FILE with an absolute path",
                           GP_FENCE_VARIABLE, value);
    }
    *out = fence;
    return GP_OK;
}

bool gp_fence_given(void)
{
    const char *value = getenv(GP_FENCE_VARIABLE);

    return value != NULL && value[0] != '\0';
}

gp_status gp_fence_read(uint32_t *newest, const char *file, gp_error *err)
{
    char text[NUMBER_BYTES];
    const char *rest;
    ssize_t got = -1;
    uint32_t number;
    int fd = -1;

    /* ESTALE: another host replaced the file between the name lookup and the read over NFS. */
    for (int i = 0; i < TRIES && got < 0; i++) {
        fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        got = fd >= 0 ? gp_read_at(fd, text, sizeof(text) - 1, 0) : -1;
        int problem = errno;

        if (fd >= 0)
            close(fd);
        errno = problem;
        if (got < 0 && errno != ESTALE)
            return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot read %s", file);
    }
    if (got < 0)
        return gp_fail_errno(err, GP_EIO, "cannot read %s", file);
    text[got] = '\0';
    number = parse(text, '\n', &rest);
    if (number == 0)
        return gp_fail(err, GP_ECORRUPT, "%s does not hold the number of an attempt", file);
    *newest = number;
    return GP_OK;
}

gp_status gp_fence_check(const gp_fence *fence, gp_error *err)
{
    char next[PATH_MAX + 32];
    const char *slash;
    uint32_t newest = 0;
    gp_status status;

    if (fence->number == 0)
        return GP_OK;
    status = gp_fence_read(&newest, fence->file, err);
    if (status != GP_OK)
        return status;
    /* A delayed attempt may have set the file back to a smaller number. */
    slash = strrchr(fence->file, '/');
    snprintf(next, sizeof(next), "%.*s/attempts/%" PRIu64, (int)(slash - fence->file), fence->file,
             (uint64_t)fence->number + 1);
    if (newest <= fence->number && access(next, F_OK) != 0)
        return GP_OK;
    return gp_fail(err, GP_ESTALE,
                   "a newer attempt of this job has started; attempt %" PRIu32 " writes nothing more",
                   fence->number);
}

gp_status gp_fence_check_process(gp_error *err)
{
    gp_fence fence;
    gp_status status = gp_fence_open(&fence, err);

    return status == GP_OK ? gp_fence_check(&fence, err) : status;
}
