/* Implement allocation.h: Slurm describes the allocation in the environment, and the scripts of
 * other engines pass on the resources that the profile requests. */
#include "client/cluster/allocation.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cluster/tool.h"
#include "common/base/clock.h"

enum {
    ASK_MS = 10000,
    NEAR_END_S = 420, /* Slurm sends --signal up to 60 s early; the script asks for at most 300 s */
};

/* Parse a decimal number that ends at `end` or at the end of the text. -1: malformed, or larger
 * than `max`. */
static int64_t number_of(const char *text, char end, int64_t max)
{
    char *rest;
    long long number;

    if (text == NULL || text[0] < '0' || text[0] > '9')
        return -1;
    number = strtoll(text, &rest, 10);
    return (*rest == '\0' || *rest == end) && number <= max ? number : -1;
}

/* Return the number of GPUs that Slurm granted on this host. */
static uint32_t slurm_gpus(void)
{
    static const char *const lists[] = { "SLURM_STEP_GPUS", "SLURM_JOB_GPUS" };
    int64_t count = number_of(getenv("SLURM_GPUS_ON_NODE"), '\0', CLUSTER_ALLOCATION_GPUS_MAX);

    for (int i = 0; i < 2 && count <= 0; i++) {
        const char *list = getenv(lists[i]);

        count = list != NULL && list[0] != '\0' ? 1 : 0;
        for (; list != NULL && (list = strchr(list, ',')) != NULL; list++)
            count++;
    }
    return count > 0 ? (uint32_t)count : 0;
}

static gp_status slurm_open(cluster_allocation *out, gp_error *err)
{
    const char *id = getenv("SLURM_JOB_ID"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    int64_t cores = number_of(getenv("SLURM_CPUS_ON_NODE"), '\0', CLUSTER_ALLOCATION_CORES_MAX);
    int64_t memory = number_of(getenv("SLURM_MEM_PER_NODE"), '\0', INT32_MAX);
    int64_t per_core = number_of(getenv("SLURM_MEM_PER_CPU"), '\0', INT32_MAX);

    if (number_of(id, '\0', INT64_MAX) <= 0)
        return gp_fail(err, GP_ESTATE, "SLURM_JOB_ID is %s; this command runs inside a job of Slurm",
                       id == NULL ? "not set" : "malformed");
    snprintf(out->id, sizeof(out->id), "%s", id);
    out->cores = cores > 0 ? (uint32_t)cores : 0;
    out->memory_mib = memory > 0                  ? (uint64_t)memory
                      : per_core > 0 && cores > 0 ? (uint64_t)(per_core * cores)
                                                  : 0;
    out->gpus = slurm_gpus();
    out->gpus_limited = true;
    if (out->gpus > 0 && (visible == NULL || visible[0] == '\0'))
        return gp_fail(
            err, GP_ENODEV,
            "Slurm granted %u GPUs but set no CUDA_VISIBLE_DEVICES; check that File= in gres.conf of "
            "this host names the character devices of the GPUs, such as /dev/nvidia[0-3]",
            out->gpus);
    return GP_OK;
}

/* Read the variables that the engines other than Slurm set from the profile. */
static void profile_open(cluster_allocation *out)
{
    const char *id = getenv("GRADPOOL_ALLOCATION_ID");
    int64_t cores = number_of(getenv("GRADPOOL_ALLOCATION_CORES"), '\0', CLUSTER_ALLOCATION_CORES_MAX);
    int64_t gpus = number_of(getenv("GRADPOOL_ALLOCATION_GPUS"), '\0', CLUSTER_ALLOCATION_GPUS_MAX);
    int64_t memory = number_of(getenv("GRADPOOL_ALLOCATION_MEMORY_MIB"), '\0', INT32_MAX);
    int64_t time_s = number_of(getenv("GRADPOOL_ALLOCATION_TIME_S"), '\0', INT32_MAX);

    snprintf(out->id, sizeof(out->id), "%s", id == NULL ? "" : id);
    out->cores = cores > 0 ? (uint32_t)cores : 0;
    out->gpus = gpus > 0 ? (uint32_t)gpus : 0;
    out->gpus_limited = gpus >= 0;
    out->memory_mib = memory > 0 ? (uint64_t)memory : 0;
    out->time_s = time_s > 0 ? time_s : 0;
}

gp_status cluster_allocation_open(cluster_allocation *out, const char *engine, gp_error *err)
{
    cluster_allocation found = { .slurm = strcmp(engine, "slurm") == 0,
                                 .kubernetes = strcmp(engine, "kubernetes") == 0 };
    const char *node = getenv("SLURMD_NODENAME");
    gp_status status = GP_OK;

    if (found.slurm)
        status = slurm_open(&found, err);
    else
        profile_open(&found);

    if (found.slurm && node != NULL)
        snprintf(found.host, sizeof(found.host), "%s", node);
    else
        gethostname(found.host, sizeof(found.host) - 1);
    *out = found;
    return status;
}

gp_status cluster_allocation_bind(const cluster_allocation *allocation, gp_error *err)
{
    cpu_set_t allowed;
    uint32_t kept = 0;

    if (allocation->cores == 0)
        return GP_OK;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot read the allowed cores");
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &allowed) && ++kept > allocation->cores)
            CPU_CLR(i, &allowed);
    if (kept > allocation->cores && sched_setaffinity(0, sizeof(allowed), &allowed) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot limit this process to %u cores", allocation->cores);
    return GP_OK;
}

gp_status cluster_allocation_limit(cluster_allocation *allocation, gp_error *err)
{
    struct sigevent notice = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGTERM };
    const struct itimerspec limit = { .it_value.tv_sec = allocation->time_s };
    timer_t timer;

    if (allocation->time_s == 0)
        return GP_OK;
    if (timer_create(CLOCK_MONOTONIC, &notice, &timer) != 0 || timer_settime(timer, 0, &limit, NULL) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot start the time limit");
    allocation->end_ms = gp_now_ms() + allocation->time_s * 1000;
    return GP_OK;
}

/* ---- notice ---- */

const char *cluster_notice_text(cluster_notice notice)
{
    return notice == CLUSTER_NOTICE_TIME_LIMIT  ? "time limit"
           : notice == CLUSTER_NOTICE_PREEMPTED ? "pre-emption"
           : notice == CLUSTER_NOTICE_ENDING    ? "ended by the engine"
                                                : "signal";
}

/* Slurm reports the time of a pre-emption in its own field. The end time alone cannot tell: Slurm
 * moves it to the end of the grace time when it pre-empts a job. */
gp_status cluster_allocation_notice(cluster_notice *out, char state[CLUSTER_TEXT_BYTES],
                                    const cluster_allocation *allocation, gp_error *err)
{
    const char *words[] = { "squeue", "--noheader",   "--states=all",
                            "--jobs", allocation->id, "--Format=State:24,EndTime:24,PreemptTime:24",
                            NULL };
    cluster_tool tool = { .words = words,
                          .set = (const char *const[]){ "SLURM_TIME_FORMAT=%s", NULL },
                          .drop = (const char *const[]){ "SQUEUE_", NULL },
                          .timeout_ms = ASK_MS,
                          .output_max = 4096 };
    cluster_tool_result result;
    char word[25], ends[25], preempted[25];
    gp_status status;

    if (!allocation->slurm) {
        /* Kubernetes sends SIGTERM only to a pod that it removes; the Job decides what follows. */
        *out = allocation->end_ms > 0 && gp_now_ms() >= allocation->end_ms ? CLUSTER_NOTICE_TIME_LIMIT
               : allocation->kubernetes                                    ? CLUSTER_NOTICE_ENDING
                                                                           : CLUSTER_NOTICE_SIGNAL;
        snprintf(state, CLUSTER_TEXT_BYTES, "%s", allocation->kubernetes ? "SIGTERM" : "");
        return GP_OK;
    }
    status = cluster_tool_run(&result, &tool, err);
    if (status != GP_OK)
        return status;
    if (result.code != 0)
        status = cluster_tool_fail(err, GP_EPEER, &tool, &result);
    else if (sscanf(gp_buffer_text(&result.output), "%24s %24s %24s", word, ends, preempted) != 3)
        status =
            gp_fail(err, GP_EPEER, "malformed output of squeue: '%.60s'", gp_buffer_text(&result.output));
    cluster_tool_deinit(&result);
    if (status != GP_OK)
        return status;
    int64_t end_s = number_of(ends, '\0', INT64_MAX);

    *out = strcmp(word, "RUNNING") != 0                             ? CLUSTER_NOTICE_ENDING
           : number_of(preempted, '\0', INT64_MAX) > 0              ? CLUSTER_NOTICE_PREEMPTED
           : end_s > 0 && end_s <= (int64_t)time(NULL) + NEAR_END_S ? CLUSTER_NOTICE_TIME_LIMIT
                                                                    : CLUSTER_NOTICE_SIGNAL;
    snprintf(state, CLUSTER_TEXT_BYTES, "%s", word);
    return GP_OK;
}

gp_status cluster_allocation_requeue(const cluster_allocation *allocation, gp_error *err)
{
    const char *words[] = { "scontrol", "requeue", allocation->id, NULL };
    cluster_tool tool = { .words = words, .timeout_ms = ASK_MS, .output_max = 4096 };
    cluster_tool_result result;
    gp_status status;

    if (!allocation->slurm)
        return gp_fail(err, GP_EUNSUPPORTED, "this engine does not requeue jobs");
    status = cluster_tool_run(&result, &tool, err);
    if (status != GP_OK)
        return status;
    if (result.code != 0)
        status = cluster_tool_fail(err, GP_EPEER, &tool, &result);
    cluster_tool_deinit(&result);
    return status;
}
