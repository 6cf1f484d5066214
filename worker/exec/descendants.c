#include "worker/exec/descendants.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/proc_stat.h"
#include "worker/comm/process.h"

/* Interval between rounds of gp_descendants_end(), and minimum round count even if each takes
 * long. */
enum { ROUND_MS = 1, ROUNDS_MIN = 10 };

/* A process as shown in /proc. */
typedef struct process {
    pid_t pid;
    gp_proc_stat stat;
} process;

/* /proc snapshot, sorted by PID. */
typedef struct census {
    process *list;
    size_t count;
} census;

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
        process p = { .pid = (pid_t)strtol(entry->d_name, NULL, 10) }, *grown;

        if (p.pid <= 0 || !gp_proc_stat_read(&p.stat, p.pid))
            continue;
        grown = gp_array_grow(c.list, c.count, sizeof(*grown));
        if (grown == NULL)
            break;
        c.list = grown;
        c.list[c.count++] = p;
    }
    closedir(directory);
    if (c.count > 0)
        qsort(c.list, c.count, sizeof(*c.list), process_order);
    return c;
}

/* Return true if `p` is a descendant of `root`. /proc is not read atomically: a reused PID may form
 * a cycle, so the walk is limited to the list length. */
static bool census_below(const census *c, const process *p, pid_t root)
{
    for (size_t steps = 0; p != NULL && steps <= c->count; steps++) {
        if (p->stat.parent == root)
            return p->pid != root;
        p = bsearch(&(process){ .pid = p->stat.parent }, c->list, c->count, sizeof(*c->list), process_order);
    }
    return false;
}

/* Signal all descendants of `root`, except members of the group `spared` (0: none). The signal is
 * sent through a pidfd after comparing the start time, so that a process with a reused PID never
 * receives it. */
static void census_signal(const census *c, pid_t root, pid_t spared, int number)
{
    for (const process *p = c->list; p < c->list + c->count; p++) {
        int pidfd;

        if (!census_below(c, p, root) || (spared != 0 && p->stat.group == spared) ||
            gp_process_open(p->pid, p->stat.start_time, &pidfd, NULL) != GP_OK)
            continue;
        syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
        close(pidfd);
    }
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
        /* a process that starts meanwhile can be missed, so this is repeated until none is left */
        census c = census_take();

        census_signal(&c, getpid(), 0, SIGKILL);
        gp_free(c.list);
        if (round >= ROUNDS_MIN && gp_now_ms() >= deadline)
            return !children_reap(each, context);
        gp_sleep_ms(ROUND_MS);
    }
    return true;
}
