/* Create and remove listening Unix sockets (listen.h). */
#include "proto/local/listen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/local/paths.h"

gp_status gp_unix_path_check(const char *path, gp_error *err)
{
    size_t bytes = strlen(path);

    if (bytes == 0 || bytes > GP_SOCKET_PATH_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "the socket path '%.120s' has %zu bytes, at most %d are allowed; set "
                       "GRADPOOL_RUNTIME_DIR to a shorter directory",
                       path, bytes, GP_SOCKET_PATH_MAX);
    return GP_OK;
}

gp_status gp_unix_address(struct sockaddr_un *out, const char *path, gp_error *err)
{
    gp_status status = gp_unix_path_check(path, err);

    if (status != GP_OK)
        return status;
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(out->sun_path, path, strlen(path));
    return GP_OK;
}

/* Build the temporary name: at most 100 + 7 bytes, which are a dot and the pid in hex. Linux limits
 * pids to 2^22, so 24 bits suffice. */
static void name_at_first(char *out, size_t bytes, const char *path, pid_t owner)
{
    snprintf(out, bytes, "%.100s.%06x", path, (unsigned)owner & 0xffffffu);
}

/* Bind the socket under the temporary name, start listening, and rename the file to `path`.
 *
 * fchmod() before bind() sets the mode with which bind() creates the file. Even without it no other
 * user could connect before chmod(): the directory has mode 0700. */
static gp_status listener_bind(int fd, const char *temporary, const char *path, int backlog, gp_listener *out,
                               gp_error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct stat seen;

    memcpy(address.sun_path, temporary, strlen(temporary));
    if (fchmod(fd, 0600) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot set the mode of the socket %s", path);
    if (unlink(temporary) != 0 && errno != ENOENT)
        return gp_fail_errno(err, GP_EIO, "cannot remove the old socket %s", temporary);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot create the socket %s", temporary);
    if (chmod(temporary, 0600) != 0 || stat(temporary, &seen) != 0 || listen(fd, backlog) != 0 ||
        rename(temporary, path) != 0) {
        gp_status status = gp_fail_errno(err, GP_EIO, "cannot create the socket %s", path);

        unlink(temporary);
        return status;
    }
    out->device = seen.st_dev;
    out->inode = seen.st_ino;
    return GP_OK;
}

gp_status gp_listener_open(gp_listener *out, const char *path, int type, int backlog, gp_error *err)
{
    struct sockaddr_un address;
    gp_listener made = { .fd = -1 };
    char temporary[sizeof(address.sun_path)];
    gp_status status = gp_unix_address(&address, path, err);

    if (status != GP_OK)
        return status;
    name_at_first(temporary, sizeof(temporary), address.sun_path, getpid());
    made.fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made.fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create a socket for %s", path);
    status = listener_bind(made.fd, temporary, path, backlog, &made, err);
    if (status != GP_OK) {
        close(made.fd);
        return status;
    }
    memcpy(made.path, path, strlen(path) + 1);
    *out = made;
    return GP_OK;
}

void gp_listener_unlink(const gp_listener *listener)
{
    struct stat seen;

    if (lstat(listener->path, &seen) == 0 && seen.st_dev == listener->device &&
        seen.st_ino == listener->inode)
        unlink(listener->path);
}

void gp_listener_forget(const char *path, pid_t owner)
{
    char temporary[sizeof(((struct sockaddr_un *)NULL)->sun_path)];

    name_at_first(temporary, sizeof(temporary), path, owner);
    unlink(temporary);
    unlink(path);
}
