/* Search for workers of an earlier scheduler, through their control sockets. */
#include "scheduler/process/orphans.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/text/log.h"
#include "proto/local/control_socket.h"
#include "proto/local/listen.h"
#include "proto/message/messages.h"

/* Connect to a control socket and get the listener's pid. -1: see errno. ECONNREFUSED: no process
 * listens. */
static int greeting(const char *path, pid_t *pid)
{
    struct sockaddr_un address;
    struct ucred who;
    socklen_t bytes = sizeof(who);
    int fd, problem = EPERM; /* of another user */

    if (gp_unix_address(&address, path, NULL) != GP_OK)
        return -1;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0) {
        problem = errno;
    } else if (who.uid == geteuid()) {
        *pid = who.pid;
        return fd;
    }
    close(fd);
    errno = problem;
    return -1;
}

/* Connect to a worker and open its pidfd. The connection is checked again afterwards: if it is
 * still open, the pid was not reused before the pidfd was opened. False: see errno. ECONNREFUSED:
 * the worker has exited. */
static bool hold(gp_survivor *out, const char *path)
{
    pid_t pid = 0;
    int problem;

    out->control_socket = greeting(path, &pid);
    if (out->control_socket < 0)
        return false;
    out->child.pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    problem = errno;
    out->start_time = gp_supervise_start_time(pid);
    struct pollfd entry = { .fd = out->control_socket, .events = POLLRDHUP };
    bool hung_up = poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;

    if (out->child.pidfd >= 0 && !hung_up) {
        out->child.pid = pid;
        return true;
    }
    if (out->child.pidfd >= 0)
        close(out->child.pidfd);
    close(out->control_socket);
    errno = hung_up || problem == ESRCH ? ECONNREFUSED : problem;
    return false;
}

static void forget(gp_survivor *survivor)
{
    if (survivor->control_socket >= 0)
        close(survivor->control_socket);
    if (survivor->child.pidfd >= 0)
        close(survivor->child.pidfd);
    survivor->control_socket = survivor->child.pidfd = -1;
}

/* Add a worker. If two workers claim one slot, the higher incarnation wins and the other is
 * killed. */
static void keep(gp_orphans *orphans, gp_survivor *found)
{
    for (uint32_t i = 0; i < orphans->count; i++) {
        gp_survivor *other = &orphans->workers[i], swap = *other;

        if (other->slot != found->slot)
            continue;
        if (found->child.incarnation > other->child.incarnation) {
            *other = *found;
            *found = swap;
        }
        gp_supervise_kill(&found->child);
        forget(found);
        return;
    }
    orphans->workers[orphans->count++] = *found; /* cannot overflow: one entry per slot */
}

/* Check one directory entry: add the worker behind a control socket, or remove the sockets if no
 * process listens. */
static void look_at(gp_orphans *orphans, const gp_paths *paths, const char *name)
{
    gp_survivor found = { .control_socket = -1, .child = { .pidfd = -1, .adopted = true } };
    char path[GP_TEXT_ENDPOINT], own[GP_TEXT_ENDPOINT];
    unsigned index, incarnation;
    int length = 0;

    if (sscanf(name, "w%3u.%10u.door%n", &index, &incarnation, &length) != 2 || length == 0 ||
        name[length] != '\0' || index == 0 || index > GP_CORE_SLOTS_MAX)
        return;
    gp_paths_worker_file(paths, index, incarnation, ".door", path);
    if (strcmp(path + strlen(path) - strlen(name), name) != 0)
        return; /* not a canonical name, such as "w01.1.door" */
    found.slot = index - 1;
    found.child.incarnation = incarnation;
    if (hold(&found, path)) {
        keep(orphans, &found);
        return;
    }
    if (errno != ECONNREFUSED) { /* the worker may be alive */
        gp_log_event(GP_LOG_WARN, "worker-unknown", GP_LOG_WITH({ "worker", .number = index }),
                     "cannot connect to %s: %s", path, strerror(errno));
        return;
    }
    gp_paths_worker_file(paths, index, incarnation, "", own);
    unlink(path);
    unlink(own);
}

void gp_orphans_find(gp_orphans *out, const gp_paths *paths)
{
    DIR *directory = opendir(paths->pool_dir);
    const struct dirent *entry;

    out->count = 0;
    if (directory == NULL)
        return;
    while ((entry = readdir(directory)) != NULL)
        look_at(out, paths, entry->d_name);
    closedir(directory);
}

void gp_orphans_free(gp_orphans *orphans)
{
    for (uint32_t i = 0; i < orphans->count; i++)
        forget(&orphans->workers[i]);
    orphans->count = 0;
}

void gp_survivor_call(const gp_survivor *survivor, uint64_t epoch)
{
    gp_control_socket_hello hello = { .magic = GP_CONTROL_SOCKET_MAGIC,
                                      .protocol_min = GP_PROTOCOL_MIN,
                                      .protocol_max = GP_PROTOCOL,
                                      .role = GP_ROLE_SCHEDULER,
                                      .pid = (uint32_t)getpid() };

    memcpy(hello.session, &epoch, sizeof(epoch));
    if (send(survivor->control_socket, &hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        gp_log_event(GP_LOG_INFO, "worker-uncalled", GP_LOG_WITH({ "worker", .number = survivor->slot + 1 }),
                     "cannot contact a worker of the previous scheduler: %s", strerror(errno));
}
