#include "worker/exec/descendants.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/proc_stat.h"
#include "worker/comm/process.h"

/* Interval between rounds of gp_descendants_end(), and minimum number of rounds even if each takes
 * long. */
enum { ROUND_MS = 1, ROUNDS_MIN = 10 };

/* A process as shown in /proc. */
typedef struct process {
    pid_t pid, parent, group;
    uint64_t start_time;
} process;

/* Snapshot of /proc, sorted by PID. */
typedef struct census {
    process *list;
    size_t count;
} census;

static bool process_read(process *out, pid_t pid)
{
    gp_proc_stat stat;

    if (!gp_proc_stat_read(&stat, pid))
        return false;
    *out = (process){ .pid = pid, .parent = stat.parent, .group = stat.group, .start_time = stat.start_time };
    return true;
}

static bool census_add(census *c, const process *p)
{
    process *grown = gp_array_grow(c->list, c->count, sizeof(*grown));

    if (grown == NULL)
        return false;
    c->list = grown;
    c->list[c->count++] = *p;
    return true;
}

static int process_order(const void *a, const void *b)
{
    const process *x = a, *y = b;

    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* Read all processes from /proc. */
static census census_take(void)
{
    census c = { 0 };
    DIR *directory = opendir("/proc");

    if (directory == NULL)
        return c;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        long pid = strtol(entry->d_name, NULL, 10);
        process p;

        if (pid > 0 && process_read(&p, (pid_t)pid) && !census_add(&c, &p))
            break;
    }
    closedir(directory);
    if (c.count > 0)
        qsort(c.list, c.count, sizeof(*c.list), process_order);
    return c;
}

static const process *census_find(const census *c, pid_t pid)
{
    return bsearch(&(process){ .pid = pid }, c->list, c->count, sizeof(*c->list), process_order);
}

/* Return true if `p` is a descendant of `root`. /proc is not read atomically: a reused PID may form
 * a cycle, so the walk is limited to the length of the list. */
static bool census_below(const census *c, const process *p, pid_t root)
{
    for (size_t steps = 0; p != NULL && steps <= c->count; steps++) {
        if (p->parent == root)
            return p->pid != root;
        p = census_find(c, p->parent);
    }
    return false;
}

/* Send a signal through a pidfd after comparing the start time, so that a process with a reused PID
 * never receives it. */
static void process_signal(const process *p, int number)
{
    int pidfd;

    if (gp_process_open(p->pid, p->start_time, &pidfd, NULL) != GP_OK)
        return;
    syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
    close(pidfd);
}

/* Signal all descendants of `root`, except members of the group `spared` (0: none). */
static void census_signal(const census *c, pid_t root, pid_t spared, int number)
{
    for (size_t i = 0; i < c->count; i++)
        if (census_below(c, &c->list[i], root) && (spared == 0 || c->list[i].group != spared))
            process_signal(&c->list[i], number);
}

void gp_descendants_signal(pid_t root, int number)
{
    census c = census_take();

    census_signal(&c, root, 0, number);
    gp_free(c.list);
}

void gp_descendants_signal_trees(const pid_t *leaders, size_t count, int number)
{
    /* take the snapshot first, because the children of a process that exits get another parent */
    census c = census_take();

    for (size_t i = 0; i < count; i++)
        /* signal the whole group at once, so that a shell does not start its next command */
        kill(-leaders[i], number);
    for (size_t i = 0; i < count; i++)
        census_signal(&c, leaders[i], leaders[i], number);
    gp_free(c.list);
}

/* Reap all children that exited. Return true if any child is left. */
static bool children_reap(void (*each)(void *context, pid_t pid, int status), void *context)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);

        if (pid == 0 || (pid < 0 && errno == EINTR))
            return true;
        if (pid < 0)
            return false;
        if (each != NULL)
            each(context, pid, status);
    }
}

bool gp_descendants_end(int timeout_ms, void (*each)(void *context, pid_t pid, int status), void *context)
{
    int64_t deadline = gp_now_ms() + timeout_ms;

    for (int round = 1; children_reap(each, context); round++) {
        gp_descendants_signal(getpid(), SIGKILL);
        if (round >= ROUNDS_MIN && gp_now_ms() >= deadline)
            return !children_reap(each, context);
        gp_sleep_ms(ROUND_MS);
    }
    return true;
}
