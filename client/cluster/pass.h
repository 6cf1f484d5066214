/* pass.h: one pass of a command over a job: do all actions that are due, and store the job before
 * each of them.
 *
 * The caller holds the lock of the record. All effects go through functions of the caller: drive.c
 * passes the engine and the disk, tests/cluster a simulation. */
#ifndef GP_CLUSTER_PASS_H
#define GP_CLUSTER_PASS_H

#include "client/cluster/machine.h"

/* Effects. All calls are bounded; `context` is the first argument of each. */
typedef struct cluster_hooks {
    void *context;
    const char *clock; /* name of the clock that now_ms() reads */
    int64_t (*now_ms)(void *context);
    int64_t (*unix_ms)(void *context); /* wall clock */
    /* Write the job to disk if it differs from the stored one. */
    gp_status (*store)(void *context, const cluster_job *job, gp_error *err);
    /* As the functions of cluster_engine. list() adds at least the jobs named job->name. */
    gp_status (*launch)(void *context, const cluster_job *job, char id[CLUSTER_ID_BYTES], gp_error *err);
    gp_status (*list)(void *context, const cluster_job *job, cluster_listing *listing, gp_error *err);
    gp_status (*facts)(void *context, const cluster_job *job, cluster_facts *facts, gp_error *err);
    gp_status (*mark)(void *context, const cluster_job *job, gp_error *err);
    gp_status (*cancel)(void *context, const cluster_job *job, const char *id, gp_error *err);
} cluster_hooks;

/* A listing for all jobs of a profile, which the caller requested before it locked the record. */
typedef struct cluster_shared_listing {
    const cluster_listing *listing; /* NULL: the engine did not reply */
    int64_t requested_ms;
    uint64_t changes; /* job->changes on disk before the request */
} cluster_shared_listing;

/* Result of a pass. */
typedef struct cluster_pass_result {
    int64_t due_ms;   /* time of the next action; INT64_MAX: none, the job has ended */
    gp_error trouble; /* last failure of an effect other than store(); code GP_OK: none */
} cluster_pass_result;

/* Do all actions that are due. The job must come from cluster_job_init() or from disk.
 *   shared  listing to use in place of calls of hooks->list(); then the facts are read once, and
 *           actions that need a new listing remain due. NULL: call hooks->list() when due
 * Failures of the engine are not errors of the pass: see result->trouble. An error of store() ends
 * the pass before a launch and before the cancel of a stray, which rely on the stored job. The
 * other actions follow, since a full disk must not prevent a cancel; then the pass returns the
 * error. A caller that reads the job again for its next pass keeps job->seen. */
gp_status cluster_pass(cluster_job *job, const cluster_hooks *hooks, const cluster_shared_listing *shared,
                       cluster_pass_result *result, gp_error *err);

#endif
