/* Inherited process attributes: detach, record and restore. process_env.h lists them. */
#include "scheduler/process/process_env.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/cgroup.h"
#include "common/base/text/log.h"
#include "common/base/memory/secret.h"
#include "common/base/system/process.h"
#include "scheduler/process/plan.h"

extern char **environ;

/* ---- fixed attributes ---- */

void gp_process_env_detach(void)
{
    sigset_t set;
    int terminal;

    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    /* The leader of a process group cannot start a session, so it only gives up the terminal. */
    terminal = setsid() >= 0 ? -1 : open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal >= 0) {
        ioctl(terminal, TIOCNOTTY);
        close(terminal);
    }
    umask(077);
    if (chdir("/") != 0)
        gp_log(GP_LOG_WARN, "start-note", "cannot change the working directory to /: %s", strerror(errno));
    for (int number = 1; number < NSIG;
         number++) /* especially SIGCHLD: a process that ignores it cannot wait for children */
        signal(number, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit then fails with an error */
    gp_daemon_signals(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
}

/* ---- attributes from the first scheduler ---- */

enum { LIMITS = 9, CORES_TEXT = 8192 };

/* Names as in prlimit(1). */
static const struct limit {
    const char *name;
    __rlimit_resource_t resource;
} limits[LIMITS] = {
    { "as", RLIMIT_AS },         { "core", RLIMIT_CORE },   { "cpu", RLIMIT_CPU },
    { "data", RLIMIT_DATA },     { "fsize", RLIMIT_FSIZE }, { "memlock", RLIMIT_MEMLOCK },
    { "nofile", RLIMIT_NOFILE }, { "nproc", RLIMIT_NPROC }, { "stack", RLIMIT_STACK },
};

/* Environment variables that the loader, the worker libraries and the daemons read. A name that
 * ends with _ is a prefix. */
static const char *const kept[] = {
    "PATH",       "HOME",    "LANG",  "LC_",    "TZ",      "TMPDIR",   "LD_LIBRARY_PATH",
    "LD_PRELOAD", "OMP_",    "GOMP_", "KMP_",   "ONEDNN_", "DNNL_",    "OPENBLAS_",
    "CUDA_",      "NVIDIA_", "NCCL_", "CUDNN_", "XDG_",    "GRADPOOL_"
};

/* Exceptions: variables that each start sets again. */
static const char *const own[] = { "GRADPOOL_FAULT", "GRADPOOL_FAULT_REPORT", "GRADPOOL_POOL",
                                   GP_SECRETS_FD_VARIABLE };

static bool is_named(const char *variable, const char *const *names, size_t count, bool prefixes)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(names[i]);

        if (strncmp(variable, names[i], length) == 0 &&
            ((prefixes && names[i][length - 1] == '_') || variable[length] == '='))
            return true;
    }
    return false;
}

/* Return whether a variable is recorded for the next scheduler. */
static bool is_kept(const char *variable)
{
    return is_named(variable, kept, sizeof(kept) / sizeof(kept[0]), true) &&
           !is_named(variable, own, sizeof(own) / sizeof(own[0]), false) && !gp_secrets_hide(variable) &&
           strchr(variable, '\n') == NULL;
}

static int oom_score(void)
{
    char text[16];

    return gp_line_read("/proc/self/oom_score_adj", text, sizeof(text)) ? atoi(text) : 0;
}

gp_status gp_process_env_write(gp_buffer *out, gp_error *err)
{
    cpu_set_t set[GP_PLAN_CORES_MAX / CPU_SETSIZE] = { 0 };
    uint16_t allowed[GP_PLAN_CORES_MAX];
    uint32_t count = 0;
    char cores[CORES_TEXT];
    gp_status status = GP_OK;

    sched_getaffinity(0, sizeof(set), set);
    for (uint16_t core = 0; core < GP_PLAN_CORES_MAX; core++)
        if (CPU_ISSET_S(core, sizeof(set), set))
            allowed[count++] = core;
    if (count > 0)
        status = gp_buffer_printf(out, err, "cores %s\n",
                                  gp_plan_format_cores(cores, sizeof(cores), allowed, count));
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, "nice %d\npolicy %d\noom %d\n", getpriority(PRIO_PROCESS, 0),
                                  sched_getscheduler(0), oom_score());
    for (size_t i = 0; i < LIMITS && status == GP_OK; i++) {
        struct rlimit limit;

        if (getrlimit(limits[i].resource, &limit) == 0)
            status = gp_buffer_printf(out, err, "limit %s %" PRIu64 "\n", limits[i].name,
                                      (uint64_t)limit.rlim_cur);
    }
    for (char **variable = environ; *variable != NULL && status == GP_OK; variable++)
        if (is_kept(*variable))
            status = gp_buffer_printf(out, err, "variable %s\n", *variable);
    return status;
}

/* Parse a core list such as "0-3,8" into a CPU set. False: malformed list. */
static bool cores_parse(cpu_set_t *set, size_t bytes, const char *list)
{
    CPU_ZERO_S(bytes, set);
    for (const char *at = list; *at != '\0';) {
        unsigned first, last;
        int length = 0;

        if (sscanf(at, "%u-%u%n", &first, &last, &length) != 2 || length == 0) {
            length = 0;
            if (sscanf(at, "%u%n", &first, &length) != 1 || length == 0)
                return false;
            last = first;
        }
        if (last < first || last >= GP_PLAN_CORES_MAX)
            return false;
        for (unsigned core = first; core <= last; core++)
            CPU_SET_S(core, bytes, set);
        at += length;
        at += *at == ',';
    }
    return true;
}

static void restore_number(const char *line)
{
    long value = strtol(strchr(line, ' ') + 1, NULL, 10);
    bool failed = false;

    if (strncmp(line, "nice ", 5) == 0) {
        failed = getpriority(PRIO_PROCESS, 0) != value && setpriority(PRIO_PROCESS, 0, (int)value) != 0;
    } else if (strncmp(line, "policy ", 7) == 0) {
        failed = sched_getscheduler(0) != value &&
                 sched_setscheduler(0, (int)value, &(struct sched_param){ 0 }) != 0;
    } else if (strncmp(line, "oom ", 4) == 0 && oom_score() != value) {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

        failed = fd < 0 || dprintf(fd, "%ld", value) < 0;
        if (fd >= 0)
            close(fd);
    }
    if (failed)
        gp_log(GP_LOG_WARN, "process-env-lost",
               "cannot restore \"%.40s\" of the pool (%s): the pool was started with other permissions", line,
               strerror(errno));
}

static void restore_limit(const char *line)
{
    uint64_t value;
    char name[16];
    struct rlimit limit;

    if (sscanf(line, "limit %15s %" SCNu64, name, &value) != 2)
        return;
    for (size_t i = 0; i < LIMITS; i++) {
        if (strcmp(name, limits[i].name) != 0 || getrlimit(limits[i].resource, &limit) != 0)
            continue;
        limit.rlim_cur = value < limit.rlim_max ? (rlim_t)value : limit.rlim_max;
        if (setrlimit(limits[i].resource, &limit) != 0 || limit.rlim_cur != value)
            gp_log(GP_LOG_WARN, "process-env-lost",
                   "cannot restore \"%.40s\" of the pool: the hard limit is lower now", line);
    }
}

/* Copy the name of NAME=value. Return the value, or NULL if the name is too long or not followed by
 * a value. */
static const char *name_of(const char *variable, char *name, size_t bytes)
{
    size_t length = strcspn(variable, "=");

    if (length >= bytes || variable[length] == '\0')
        return NULL;
    snprintf(name, bytes, "%.*s", (int)length, variable);
    return variable + length + 1;
}

void gp_process_env_restore(const char *text)
{
    size_t bytes = strlen(text);
    char *copy = gp_malloc(bytes + 1), *rest = copy, *line, name[128];
    const char *value;
    cpu_set_t set[GP_PLAN_CORES_MAX / CPU_SETSIZE];

    if (copy == NULL)
        return;
    memcpy(copy, text, bytes + 1);
    /* Unset all kept variables, so that those missing from the record do not remain. */
    for (char **variable = environ; *variable != NULL;) {
        if (is_kept(*variable) && name_of(*variable, name, sizeof(name)) != NULL)
            unsetenv(name); /* the next variable moves to this position */
        else
            variable++;
    }
    while ((line = strsep(&rest, "\n")) != NULL) {
        bool lost = false;

        if (strncmp(line, "cores ", 6) == 0)
            lost = !cores_parse(set, sizeof(set), line + 6) || sched_setaffinity(0, sizeof(set), set) != 0;
        else if (strncmp(line, "limit ", 6) == 0)
            restore_limit(line);
        else if (strncmp(line, "variable ", 9) == 0 && is_kept(line + 9) &&
                 (value = name_of(line + 9, name, sizeof(name))) != NULL)
            setenv(name, value, 1);
        else if (strncmp(line, "nice ", 5) == 0 || strncmp(line, "policy ", 7) == 0 ||
                 strncmp(line, "oom ", 4) == 0)
            restore_number(line);
        if (lost)
            gp_log(GP_LOG_WARN, "process-env-lost", "cannot restore %.86s of the pool: %s", line,
                   strerror(errno));
    }
    gp_free(copy);
}
