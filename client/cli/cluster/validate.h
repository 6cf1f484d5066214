/* `gradpool cluster validate NAME`: check that a profile works, with a job.
 *
 * The stages follow one another. The first one that fails ends the check: the later ones are
 * skipped, but the job is always canceled. Some faults show only on the hosts that run jobs, so
 * most stages follow a real job. Its command is `gradpool job-check` (job_check.h). It has a record
 * like any other job, so after a crash of this command `gradpool jobs` lists it and `gradpool
 * cancel` ends it.
 *
 *     validate.c          stages that need no job: profile, engine, allocation
 *     validate_job.c      stages of the job: allocation to notice, end
 *     validate_report.c   the results: lines, JSON, fixes */
#ifndef GP_CLI_CLUSTER_VALIDATE_H
#define GP_CLI_CLUSTER_VALIDATE_H

#include "client/cli/cluster/cluster_jobs.h"

typedef enum validate_stage {
    VALIDATE_PROFILE,    /* the file is well-formed, the folder of the jobs is writable */
    VALIDATE_ENGINE,     /* the engine replies */
    VALIDATE_ALLOCATION, /* the engine grants the resources, on a host that shares folder and clock */
    VALIDATE_BUILD,      /* that host runs the same version of gradpool */
    VALIDATE_DEVICES,    /* the pool starts and its devices work */
    VALIDATE_DATA,       /* --data can be opened there */
    VALIDATE_JOB,        /* a training takes a step */
    VALIDATE_NOTICE,     /* after a notice it writes a checkpoint, and the engine requeues it */
    VALIDATE_END,        /* a cancel leaves nothing behind */
    VALIDATE_STAGES,
} validate_stage;

typedef enum validate_result {
    VALIDATE_OPEN, /* not known yet */
    VALIDATE_PASSED,
    VALIDATE_FAILED,
    VALIDATE_SKIPPED,
} validate_result;

typedef struct validate_row {
    validate_result result;
    char text[400]; /* what was found: the cause of a failure, the reason for a skip */
    char fix[400];  /* fix of a failure */
} validate_row;

/* A run of the command. */
typedef struct validation {
    const char *name; /* profile */
    const char *data; /* source to open in the job; "": none */
    bool quiet, json;
    cluster_place *place;            /* NULL: the profile cannot be read */
    cluster_record record;           /* job */
    char folder[CLUSTER_PATH_BYTES]; /* folder of the job on this host; "": none */
    double queue_seconds;            /* time in the queue; -1: no job has started */
    validate_row rows[VALIDATE_STAGES];
    validate_stage printed; /* rows before this one have been printed */
} validation;

/* Run the stages, print the results, and set call->code: CLI_OK or CLI_FAILED.
 *   data  source to open on the host of the job; "": none
 *   job   false: submit no job
 * GP_ECANCELED: interrupted; the job was canceled. */
gp_status cluster_validate(cli_call *call, const char *name, const char *data, bool job, gp_error *err);

/* Submit the job, follow it through its stages, and end it. */
gp_status validate_job(validation *v, gp_error *err);

/* ---- results ---- */

/* Set the result of a stage, and print the lines that are complete. */
void validate_pass(validation *v, validate_stage stage, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void validate_skip(validation *v, validate_stage stage, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Mark a stage as failed, and skip all stages before VALIDATE_END that have no result.
 *   cause  message. The text after "; " is the fix, unless a fix for this cause is known. */
void validate_fail(validation *v, validate_stage stage, const char *cause);

/* Return the stage that failed; VALIDATE_STAGES: none. */
validate_stage validate_failed(const validation *v);

/* Print the results as JSON. */
gp_status validate_print_json(const validation *v, double seconds, gp_error *err);

#endif
