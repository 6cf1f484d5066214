/* netns.h: two hosts on one machine: two network namespaces connected by a veth pair.
 *
 * The test process runs on host B and switches to A and back; a child stays on the host where it
 * was forked. Needs root or unprivileged user namespaces, and `ip` (iproute2). */
#ifndef GP_TEST_FAULT_NETNS_H
#define GP_TEST_FAULT_NETNS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOST_A "10.77.0.1"
#define HOST_B "10.77.0.2"

static int netns_of[2] = { -1, -1 }; /* A, B */
static char netns_reason[300];       /* why no namespaces are available */

static inline bool netns_fail(const char *what)
{
    snprintf(netns_reason, sizeof(netns_reason), "%s: %s", what, strerror(errno));
    return false;
}

static inline bool netns_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return done;
}

__attribute__((format(printf, 1, 2))) static inline bool netns_ip(const char *format, ...)
{
    char command[300] = "ip ";
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command + 3, sizeof(command) - 3, format, arguments);
    va_end(arguments);
    return system(command) == 0;
}

/* Move the calling thread, and future children, to a host. */
static inline void netns_enter(int host)
{
    if (setns(netns_of[host], CLONE_NEWNET) != 0)
        abort();
}

/* Create an empty network namespace and return a descriptor for it. */
static inline int netns_new(void)
{
    int fd = -1;

    if (unshare(CLONE_NEWNET) == 0)
        fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    return fd;
}

/* Keep all capabilities across exec, for `ip`: the first process in a user namespace loses them
 * unless it is root there. */
static inline bool netns_keep_rights(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct rights[2];

    if (syscall(SYS_capget, &header, rights) != 0)
        return false;
    rights[0].inheritable |= 1u << CAP_NET_ADMIN;
    return syscall(SYS_capset, &header, rights) == 0 &&
           prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0) == 0;
}

/* Set up the hosts; once per process, before threads exist. On failure, netns_reason has the
 * reason. */
static inline bool netns_begin(void)
{
    char map[60];
    uid_t user = geteuid();
    gid_t group = getegid();

    if (netns_of[0] >= 0)
        return true;
    if (system("ip -V >/dev/null 2>&1") != 0) {
        snprintf(netns_reason, sizeof(netns_reason), "there is no ip command (iproute2)");
        return false;
    }
    netns_of[0] = netns_new();
    if (netns_of[0] < 0) { /* not root: use a new user namespace */
        if (unshare(CLONE_NEWUSER) != 0)
            return netns_fail("neither network nor user namespaces may be made here");
        snprintf(map, sizeof(map), "%u %u 1\n", user, user);
        if (!netns_write("/proc/self/setgroups", "deny") || !netns_write("/proc/self/uid_map", map))
            return netns_fail("no user namespace");
        snprintf(map, sizeof(map), "%u %u 1\n", group, group);
        if (!netns_write("/proc/self/gid_map", map))
            return netns_fail("no user namespace");
        if (!netns_keep_rights())
            return netns_fail("no rights in a user namespace of our own");
        netns_of[0] = netns_new();
        if (netns_of[0] < 0)
            return netns_fail("network namespaces may not be made in a user namespace here");
    }
    if (!netns_ip("link set lo up"))
        return netns_fail("a network namespace in which nothing can be set");
    netns_of[1] = netns_new();
    if (netns_of[1] < 0)
        return netns_fail("no second network namespace");

    /* `ip` needs a process in the namespace to name the other end of the cable: keep a child there
     * for that purpose. */
    pid_t there = fork();

    if (there == 0) {
        netns_enter(0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    bool done = netns_ip("link set lo up");

    for (int i = 0; i < 100 && done; i++) { /* until the interface exists */
        char ours[64] = "", its[64] = "", path[64];

        snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)there);
        done = readlink("/proc/self/ns/net", ours, sizeof(ours) - 1) > 0 &&
               readlink(path, its, sizeof(its) - 1) > 0;
        if (done && strcmp(ours, its) != 0)
            break;
        usleep(2000);
    }
    done = done && netns_ip("link add cable type veth peer name cable netns %d", (int)there) &&
           netns_ip("addr add " HOST_B "/24 dev cable") && netns_ip("link set cable up");
    netns_enter(0);
    done = done && netns_ip("addr add " HOST_A "/24 dev cable") && netns_ip("link set cable up");
    netns_enter(1);
    kill(there, SIGKILL);
    waitpid(there, NULL, 0);
    if (!done) {
        netns_of[0] = -1;
        snprintf(netns_reason, sizeof(netns_reason), "no veth pair can be made here");
    }
    return done;
}

#endif
