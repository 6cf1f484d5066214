/* The allocation of a cluster job, as its own process sees it: what the engine granted, why the
 * engine wants it back, and how to start the job again. */
#ifndef GP_CLUSTER_ALLOCATION_H
#define GP_CLUSTER_ALLOCATION_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cluster/engine.h"
#include "common/base/error.h"

enum { CLUSTER_ALLOCATION_CORES_MAX = 65536, CLUSTER_ALLOCATION_GPUS_MAX = 1024 };

/* Resources of this host that the engine granted. */
typedef struct cluster_allocation {
    bool slurm, kubernetes;
    char id[CLUSTER_ID_BYTES]; /* engine's id of the job; "": the engine gives none */
    char host[64];             /* engine's name of this host; else its host name */
    uint32_t cores;            /* 0: all that this process may use */
    uint32_t gpus;
    bool gpus_limited;   /* the engine grants GPUs; false: all that this process sees */
    uint64_t memory_mib; /* 0: unknown */
    int64_t time_s;      /* time limit that this process has to enforce; 0: none */
    int64_t end_ms;      /* its end on the monotonic clock; 0: none */
} cluster_allocation;

/* Read the allocation from the environment.
 *   out     set also after an error, as far as it is known
 *   engine  type of the engine, from command.json
 * GP_ENODEV: GPUs were granted, but no device is visible. GP_ESTATE: this process is not in an
 * allocation of the engine. */
gp_status cluster_allocation_open(cluster_allocation *out, const char *engine, gp_error *err);

/* Limit this process and its children to the granted number of cores, unless the engine has done so
 * already. */
gp_status cluster_allocation_bind(const cluster_allocation *allocation, gp_error *err);

/* Start the time limit: this process receives SIGTERM, the notice, when it passes. Slurm enforces
 * its limits itself. */
gp_status cluster_allocation_limit(cluster_allocation *allocation, gp_error *err);

/* Why an engine ends an allocation. */
typedef enum cluster_notice {
    CLUSTER_NOTICE_SIGNAL,     /* unknown: a signal, but the job may continue to run */
    CLUSTER_NOTICE_TIME_LIMIT, /* the time limit is near */
    CLUSTER_NOTICE_PREEMPTED,  /* another job needs the resources */
    CLUSTER_NOTICE_ENDING,     /* the engine is ending the job already, and decides what follows */
} cluster_notice;

/* Ask the engine why it sent a notice.
 *   state  set to the engine's state of the job, such as "RUNNING"
 * GP_ETIMEDOUT, GP_EPEER: no answer. */
gp_status cluster_allocation_notice(cluster_notice *out, char state[CLUSTER_TEXT_BYTES],
                                    const cluster_allocation *allocation, gp_error *err);

/* Return "time limit", "pre-emption", ... */
const char *cluster_notice_text(cluster_notice notice);

/* Ask the engine to queue this job again. The engine then kills the processes of the job.
 * GP_EUNSUPPORTED: the engine cannot. GP_ENOENT: its command is missing. GP_ETIMEDOUT, GP_EPEER:
 * the outcome is unknown, and the call may be repeated. */
gp_status cluster_allocation_requeue(const cluster_allocation *allocation, gp_error *err);

#endif
