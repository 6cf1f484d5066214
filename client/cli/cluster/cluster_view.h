/* State of a cluster job as it is shown to the user: as a line, as JSON and as an exit code. */
#ifndef GP_CLI_CLUSTER_VIEW_H
#define GP_CLI_CLUSTER_VIEW_H

#include "client/cli/cli.h"
#include "client/cluster/drive.h"

enum {
    CLUSTER_WORD_BYTES = GP_PROFILE_NAME_MAX + CLUSTER_ID_BYTES + 2,
    CLUSTER_METRICS_ENDS = 16384, /* bytes of metrics.jsonl that are read for its steps */
};

/* A job as it is shown to the user. */
typedef struct cluster_view {
    char job[CLUSTER_WORD_BYTES];
    gp_job_state state;
    char engine[CLUSTER_TEXT_BYTES + 32]; /* the engine's state; "unknown since ..." */
    int64_t step;                         /* last step of a training; -1: none */
    int exit_code;                        /* -1: none */
    double age_seconds, run_seconds;
    char reason[2 * CLUSTER_REASON_BYTES];
} cluster_view;

/* Describe a job.
 *   unknown  why the engine's state is unknown, such as "unknown since 14:02"; NULL: it is known
 *   steps    steps of the job; NULL: read them */
void cluster_view_of(cluster_view *out, const cluster_site *site, const cluster_record *record,
                     const char *unknown, const cluster_steps *steps);

/* Return the first and the last step in the ends of a file metrics.jsonl. */
cluster_steps cluster_steps_of(const char *text);

/* Return the state of a job as it is shown to the user. */
gp_job_state cluster_state_of(const cluster_job *job);

/* Return whether the job is over for the user: it has ended, or its result is on disk. */
bool cluster_is_over(const cluster_record *record);

/* Return the exit code of `gradpool wait` for a job that is over. */
int cluster_exit_code(const cluster_record *record);

/* Write a job as a JSON object with the keys of local jobs, and those of clusters. */
void cluster_view_put(gp_json_writer *writer, const cluster_view *view, const cluster_record *record);

/* Print a job as one line of JSON. */
void cluster_view_json(const cluster_view *view, const cluster_record *record, const char *end);

/* Print a line such as "job hpc:7 (lenet): failed after 3.2 s, exit code 1: REASON". */
void cluster_print_end(FILE *out, const cluster_view *view, const cluster_record *record);

#endif
