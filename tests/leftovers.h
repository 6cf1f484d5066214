/* leftovers.h: remove the folder and the processes of a test however it ends (early return, crash,
 * SIGKILL at the time limit).
 *
 * A separate process, forked before threads exist, receives each folder through a pipe, waits for
 * the end of the test, then kills the remaining processes and removes the folders.
 * GRADPOOL_TEST_KEEP=1: keep everything. */
#ifndef GP_TEST_LEFTOVERS_H
#define GP_TEST_LEFTOVERS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEFTOVERS_PATH = 32, LEFTOVERS_MAX = 4096 };

static int leftovers_remove(const char *path, const struct stat *facts, int kind, struct FTW *at)
{
    (void)facts;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Remove a folder and the files in it. */
static inline void leftovers_clear(const char *path)
{
    nftw(path, leftovers_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Read up to `bytes` bytes of /proc/PID/NAME; -1: it cannot be opened. */
static inline ssize_t leftovers_read(int pid, const char *name, char *text, size_t bytes)
{
    char path[300];

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, bytes);

    if (fd >= 0)
        close(fd);
    return got;
}

/* Return whether a process with an empty environment has one now or will have one soon.
 * posix_spawn() can return before the new program's arguments and environment are visible. */
static inline bool leftovers_nascent(int pid)
{
    enum { KERNEL_THREAD = 0x200000 };
    char text[1024], state = 'X';
    unsigned flags = KERNEL_THREAD;
    ssize_t got = leftovers_read(pid, "stat", text, sizeof(text) - 1);
    const char *name_end;

    text[got < 0 ? 0 : got] = '\0';
    name_end = strrchr(text, ')');
    if (name_end == NULL || sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
        return false;
    return state != 'Z' && state != 'X' && (flags & KERNEL_THREAD) == 0 &&
           (leftovers_read(pid, "cmdline", text, sizeof(text)) == 0 ||
            leftovers_read(pid, "environ", text, sizeof(text)) > 0);
}

/* Kill every process whose initial environment names the folder. Return their number, plus
 * processes whose environment is not visible yet. */
static inline int leftovers_kill(const char *folder)
{
    static char text[1 << 15];
    DIR *all = opendir("/proc");
    int found = 0;

    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        int pid = atoi(entry->d_name);
        ssize_t got =
            pid > 1 && pid != (int)getpid() ? leftovers_read(pid, "environ", text, sizeof(text)) : -1;

        if (got > 0 && memmem(text, (size_t)got, folder, strlen(folder)) != NULL)
            found += kill(pid, SIGKILL) == 0;
        else if (got == 0)
            found += leftovers_nascent(pid);
    }
    if (all != NULL)
        closedir(all);
    return found;
}

static inline void leftovers_wait(pid_t test, int reported)
{
    static char folders[LEFTOVERS_MAX][LEFTOVERS_PATH];
    struct pollfd ended = { .fd = (int)syscall(SYS_pidfd_open, test, 0), .events = POLLIN };
    int count = 0;

    if (ended.fd >= 0)
        poll(&ended, 1, -1);
    while (count < LEFTOVERS_MAX && read(reported, folders[count], LEFTOVERS_PATH) == LEFTOVERS_PATH)
        count++;
    for (int i = 0; i < count; i++) {
        for (int again = 0; again < 1000 && leftovers_kill(folders[i]) > 0; again++)
            usleep(10000); /* daemons may start others while they are killed */
        leftovers_clear(folders[i]);
    }
}

/* Watch a folder "/tmp/gpt-XXXXXX" with the name filled in, at most 31 bytes. */
static inline void leftovers_watch(const char *folder)
{
    static int tell = -1;
    static pid_t owner;
    char path[LEFTOVERS_PATH] = "";
    int ends[2];

    if (getenv("GRADPOOL_TEST_KEEP") != NULL)
        return;
    if (owner != getpid()) { /* a forked child of a test has other folders and exits earlier */
        pid_t test = owner = getpid();

        fflush(stdout);
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
            abort();
        pid_t child = fork();

        if (child == 0) {
            if (fork() != 0)
                _exit(0); /* reparents the watcher, so that the test has no child to wait for */
            setsid();
            for (int fd = 0; fd < 1024; fd++) /* close the output: readers wait for its end */
                if (fd != ends[0])
                    close(fd);
            leftovers_wait(test, ends[0]);
            _exit(0);
        }
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
        close(ends[0]);
        tell = ends[1];
    }
    snprintf(path, sizeof(path), "%s", folder);
    if (write(tell, path, sizeof(path)) != (ssize_t)sizeof(path))
        abort();
}

/* Create a folder with mkdtemp() and remove it with the test. */
static inline char *leftovers_make(char *template)
{
    char *made = mkdtemp(template);

    if (made != NULL)
        leftovers_watch(made);
    return made;
}

#endif
