/* Host checks for `gradpool doctor`: reading facts and judging them are separate, so that tests can
 * supply facts. */
#include "client/cli/measure/doctor.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "common/base/system/cgroup.h"
#include "proto/local/paths.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum { FILES_LEAST = 4096, PROCESSES_LEAST = 4096, YEAR_LEAST = 2024 };

void doctor_add(doctor *d, doctor_state state, const char *what, const char *fix, const char *format, ...)
{
    doctor_row *row = &d->rows[d->count];
    va_list values;

    if (d->count == DOCTOR_ROWS_MAX)
        return;
    d->count++;
    row->state = state;
    snprintf(row->what, sizeof(row->what), "%s", what);
    snprintf(row->fix, sizeof(row->fix), "%s", fix == NULL ? "" : fix);
    va_start(values, format);
    vsnprintf(row->found, sizeof(row->found), format, values);
    va_end(values);
}

/* ---- reading ---- */

/* Return a soft resource limit; UINT64_MAX: unlimited, 0: unknown.
 *   hard  set to the hard limit; may be NULL */
static uint64_t limit_of(int resource, uint64_t *hard)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) != 0)
        return 0;
    if (hard != NULL)
        *hard = limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

/* Create the pool directories as a pool would. Detect the container type from marker files and
 * environment variables. */
void doctor_host_read(doctor_host *host, const char *pool)
{
    const char *container = access("/.dockerenv", F_OK) == 0          ? "docker"
                            : access("/run/.containerenv", F_OK) == 0 ? "podman"
                            : getenv("SLURM_JOB_ID") != NULL          ? "slurm"
                                                                      : "";
    struct timex clock_state = { 0 };
    time_t now = time(NULL);
    struct tm parts;
    struct statvfs info;
    gp_paths paths;
    cpu_set_t set;
    char text[128];
    gp_error err;

    *host = (doctor_host){ .shm = statvfs("/dev/shm", &info) == 0 };
    if (host->shm) {
        host->shm_bytes = (uint64_t)info.f_blocks * info.f_frsize;
        host->shm_free = (uint64_t)info.f_bavail * info.f_frsize;
    }
    host->memlock = limit_of(RLIMIT_MEMLOCK, NULL);
    host->nofile = limit_of(RLIMIT_NOFILE, &host->nofile_hard);
    host->nproc = limit_of(RLIMIT_NPROC, NULL);
    snprintf(host->container, sizeof(host->container), "%s",
             getenv("KUBERNETES_SERVICE_HOST") != NULL ? "kubernetes" : container);
    if (gp_line_read("/proc/meminfo", text, sizeof(text)) &&
        sscanf(text, "MemTotal: %" SCNu64, &host->memory) == 1)
        host->memory <<= 10;
    host->memory_limit = gp_cgroup_memory_read().limit;
    host->cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 0;
    host->cpu_quota = gp_cgroup_cpus();
    host->clock_synchronised = adjtimex(&clock_state) < 0 ? -1 : (clock_state.status & STA_UNSYNC) == 0;
    host->year = gmtime_r(&now, &parts) == NULL ? 0 : parts.tm_year + 1900;
    gp_line_read("/sys/devices/system/clocksource/clocksource0/current_clocksource", host->clocksource,
                 sizeof(host->clocksource));
    if (gp_paths_find(&paths, pool, &err) != GP_OK || gp_paths_create(&paths, &err) != GP_OK) {
        snprintf(host->paths, sizeof(host->paths), "%.239s", err.message);
        return;
    }
    snprintf(host->state_dir, sizeof(host->state_dir), "%.159s", paths.state_dir);
    if (statvfs(paths.state_dir, &info) == 0)
        host->state_free = (uint64_t)info.f_bavail * info.f_frsize;
}

/* ---- judging ---- */

static bool in_docker(const doctor_host *host)
{
    return strcmp(host->container, "docker") == 0 || strcmp(host->container, "podman") == 0;
}

/* NCCL ranks on one host communicate through /dev/shm. CPU workers do not need it. */
static void check_shm(doctor *d, const doctor_host *host, uint32_t gpus)
{
    const uint64_t least = gpus > 1 ? GIB : 64 * MIB;
    char size[40], left[40];
    const char *fix = in_docker(host) ? "start the container with --shm-size=8g (or --ipc=host)"
                      : strcmp(host->container, "kubernetes") == 0
                          ? "give the pod an emptyDir of medium Memory at /dev/shm"
                          : "mount -o remount,size=8g /dev/shm";

    if (!host->shm) {
        doctor_add(d, gpus > 1 ? DOCTOR_FAILURE : DOCTOR_WARNING, "/dev/shm", fix, "is missing");
        return;
    }
    cli_bytes((double)host->shm_bytes, size, sizeof(size));
    cli_bytes((double)host->shm_free, left, sizeof(left));
    if (host->shm_free < least)
        doctor_add(d, gpus > 1 ? DOCTOR_FAILURE : DOCTOR_WARNING, "/dev/shm", fix, "%s, %s of it free; %s",
                   size, left, gpus > 1 ? "NCCL needs about 1 GiB for several GPUs" : "64 MiB is too small");
    else
        doctor_add(d, DOCTOR_OK, "/dev/shm", NULL, "%s, %s of it free", size, left);
}

static void limit_text(uint64_t value, char text[32])
{
    if (value == UINT64_MAX)
        snprintf(text, 32, "unlimited");
    else
        snprintf(text, 32, "%" PRIu64, value);
}

static void check_limits(doctor *d, const doctor_host *host, uint32_t gpus)
{
    char soft[32], hard[32];

    limit_text(host->nofile, soft);
    limit_text(host->nofile_hard, hard);
    if (host->nofile < FILES_LEAST)
        doctor_add(d, DOCTOR_WARNING, "open files (nofile)",
                   host->nofile_hard >= FILES_LEAST ? "ulimit -n 65536, or less where the hard limit is lower"
                   : in_docker(host)                ? "start the container with --ulimit nofile=65536"
                                     : "raise it in /etc/security/limits.conf: * - nofile 65536",
                   "%s (hard: %s); a pool of many workers and clients needs %d", soft, hard, FILES_LEAST);
    else
        doctor_add(d, DOCTOR_OK, "open files (nofile)", NULL, "%s (hard: %s)", soft, hard);
    limit_text(host->nproc, soft);
    if (host->nproc < PROCESSES_LEAST)
        doctor_add(d, DOCTOR_WARNING, "processes (nproc)",
                   in_docker(host) ? "start the container with --ulimit nproc=65536 and a higher --pids-limit"
                                   : "raise it in /etc/security/limits.conf: * - nproc 65536",
                   "%s; includes threads", soft);
    else
        doctor_add(d, DOCTOR_OK, "processes (nproc)", NULL, "%s", soft);
    if (host->memlock == UINT64_MAX) {
        doctor_add(d, DOCTOR_OK, "locked memory (memlock)", NULL, "unlimited");
        return;
    }
    cli_bytes((double)host->memlock, soft, sizeof(soft));
    doctor_add(d, gpus > 1 && host->memlock < 64 * MIB ? DOCTOR_WARNING : DOCTOR_OK,
               "locked memory (memlock)",
               gpus <= 1 || host->memlock >= 64 * MIB ? NULL
               : in_docker(host)                      ? "start the container with --ulimit memlock=-1"
                                 : "raise it in /etc/security/limits.conf: * - memlock unlimited",
               "%s%s", soft, gpus > 1 && host->memlock < 64 * MIB ? "; NCCL over InfiniBand pins more" : "");
}

static void check_container(doctor *d, const doctor_host *host)
{
    char limit[40], all[40];

    doctor_add(d, DOCTOR_NOTE, "container", NULL, "%s",
               host->container[0] == '\0' ? "no limit found" : host->container);
    cli_bytes((double)host->memory, all, sizeof(all));
    if (host->memory_limit == UINT64_MAX || host->memory_limit >= host->memory) {
        doctor_add(d, DOCTOR_OK, "memory", NULL, "%s, no limit of the cgroup", all);
    } else {
        cli_bytes((double)host->memory_limit, limit, sizeof(limit));
        doctor_add(d, host->memory_limit < 2 * GIB ? DOCTOR_WARNING : DOCTOR_NOTE, "memory",
                   host->memory_limit >= 2 * GIB ? NULL
                   : in_docker(host)
                       ? "start the container with a higher --memory"
                       : "raise memory.max of the cgroup (Slurm: --mem, Kubernetes: limits.memory)",
                   "the cgroup allows %s of %s; processes above the limit are killed", limit, all);
    }
    if (host->cpu_quota != UINT32_MAX && host->cpu_quota < host->cores)
        doctor_add(
            d, DOCTOR_WARNING, "cores",
            in_docker(host)
                ? "start the container with --cpuset-cpus instead of --cpus: a quota suspends pinned threads"
                : "use a cpuset instead of a CPU quota: a quota suspends pinned threads",
            "%" PRIu32 " cores with a CPU quota of %" PRIu32 "; the pool uses %" PRIu32, host->cores,
            host->cpu_quota, host->cpu_quota);
    else
        doctor_add(d, DOCTOR_OK, "cores", NULL, "%" PRIu32, host->cores);
}

static void check_clock(doctor *d, const doctor_host *host)
{
    bool slow = strcmp(host->clocksource, "hpet") == 0 || strcmp(host->clocksource, "acpi_pm") == 0;

    if (host->year != 0 && host->year < YEAR_LEAST)
        doctor_add(d, DOCTOR_FAILURE, "clock", "set the clock: timedatectl set-ntp true",
                   "the year is %d; TLS certificates fail and dates of runs are wrong", host->year);
    else
        doctor_add(d, host->clock_synchronised == 0 ? DOCTOR_NOTE : DOCTOR_OK, "clock",
                   host->clock_synchronised == 0 ? "timedatectl set-ntp true" : NULL, "%s",
                   host->clock_synchronised == 0   ? "not synchronised; affects only dates in listings"
                   : host->clock_synchronised == 1 ? "synchronised"
                                                   : "synchronisation state unknown");
    if (host->clocksource[0] != '\0')
        doctor_add(d, slow ? DOCTOR_WARNING : DOCTOR_OK, "clock source",
                   slow ? "boot with clocksource=tsc, if the processor's counter is reliable" : NULL, "%s%s",
                   host->clocksource, slow ? "; reading the time takes microseconds" : "");
}

static void check_places(doctor *d, const doctor_host *host)
{
    char left[40];

    if (host->paths[0] != '\0') {
        doctor_add(d, DOCTOR_FAILURE, "pool directories",
                   "set GRADPOOL_RUNTIME_DIR and GRADPOOL_STATE_DIR to your own folders, mode 0700", "%s",
                   host->paths);
        return;
    }
    cli_bytes((double)host->state_free, left, sizeof(left));
    doctor_add(d, host->state_free < GIB ? DOCTOR_WARNING : DOCTOR_OK, "pool directories",
               host->state_free < GIB ? "free disk space, or set GRADPOOL_STATE_DIR" : NULL, "%s, %s free",
               host->state_dir, left);
}

void doctor_host_check(doctor *d, const doctor_host *host, uint32_t gpus)
{
    check_places(d, host);
    check_container(d, host);
    check_shm(d, host, gpus);
    check_limits(d, host, gpus);
    check_clock(d, host);
}
