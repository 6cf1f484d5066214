/* Jobs of clusters in the commands submit, jobs, logs, wait, cancel and report.
 *
 * A job is named PROFILE:ID, with the engine's id, or PROFILE:NAME with its launch name as long as
 * the engine has not confirmed the launch. PROFILE:ARRAY names all jobs of an array, and
 * PROFILE:ARRAY.N one of them. Each visit to a job continues what an earlier command
 * left undone (client/cluster/drive.h). */
#ifndef GP_CLI_CLUSTER_JOBS_H
#define GP_CLI_CLUSTER_JOBS_H

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster_view.h"
#include "client/cluster/drive.h"

enum {
    CLUSTER_CANCEL_LIMIT_MS = 60000, /* until a cancel gives up */
    CLUSTER_LOCK_WAIT_MS = 35000,    /* longer than one call of an engine */
};

/* A profile with its site. */
typedef struct cluster_place {
    gp_profile profile;
    cluster_site site;
} cluster_place;

/* Read a profile and open its site. NAME may be "default". Free *out with gp_free(). */
gp_status cluster_place_open(cluster_place **out, const char *name, gp_error *err);

/* One job of a command. */
typedef struct cluster_ref {
    cluster_place *place;
    char name[CLUSTER_NAME_BYTES];
    cluster_record record; /* as of the last visit */
    cluster_pass_result pass;
    bool busy;        /* another command worked on the job at the last visit */
    gp_error failure; /* of a visit by cluster_refs_visit(); code GP_OK: none */
} cluster_ref;

/* Return whether a word names a job of a cluster. */
bool cluster_word(const char *word);

/* Return whether the words of a call name jobs of clusters. If they name both kinds of jobs, print
 * an error, and set *code to the exit code. */
bool cluster_words(const cli_call *call, int *code);

/* Find one job and read its record. GP_EINVAL: the word has another form, or names several jobs.
 * GP_ENOENT: no such profile or job. */
gp_status cluster_ref_open(cluster_ref *out, const char *word, gp_error *err);
void cluster_ref_close(cluster_ref *ref);

/* Jobs of a command line. */
typedef struct cluster_refs {
    cluster_ref *refs;
    size_t count;
    int64_t listed_ms; /* last listing of cluster_refs_visit(); 0: none */
} cluster_refs;

/* Find the jobs of all words. Errors as for cluster_ref_open(). */
gp_status cluster_refs_open(cluster_refs *out, const cli_call *call, gp_error *err);

/* Find all jobs of a profile that are not over. */
gp_status cluster_refs_open_all(cluster_refs *out, const char *profile, gp_error *err);
void cluster_refs_close(cluster_refs *refs);

/* Visit all jobs that have not ended. Several jobs of a profile share one listing, which is made at
 * most every CLUSTER_LIST_MS, or every 2 s while a job awaits the engine's confirmation. If a visit
 * fails, set the `failure` of the job, do not visit it again, and continue with the others. If
 * `cancel` is false, a temporary error is stored in `pass.trouble` of the job, and the next round
 * retries. Ctrl-C ends the round.
 *   cancel       cancel the jobs first
 *   deadline_ms  the round ends at this time, but the first job is always visited */
void cluster_refs_visit(cluster_refs *refs, bool cancel, int64_t deadline_ms);

/* Sleep until the next visit, or until Ctrl-C. */
void cluster_refs_sleep(const cluster_refs *refs);

/* Visit the job. If another command works on it, only read the record and set ref->busy.
 *   waits  the command waits for the job: store a temporary error (GP_EIO, GP_ENOMEM, GP_ELIMIT) in
 *          ref->pass.trouble instead of returning it */
gp_status cluster_ref_visit(cluster_ref *ref, bool waits, gp_error *err);

/* Sleep until the job needs the next visit, at most `limit_ms`, or until Ctrl-C. If the job folder
 * is on another host, sleep for 3 s. */
void cluster_ref_sleep(const cluster_ref *ref, int64_t limit_ms);

/* The commands. Each sets call->code. */
gp_status cluster_jobs_list(cli_call *call, const char *profile, bool all, gp_error *err);

/* List the jobs of all profiles of clusters. An error of a profile is reported, and the next one
 * follows. */
gp_status cluster_jobs_list_all(cli_call *call, bool all, gp_error *err);
gp_status cluster_jobs_wait(cli_call *call, bool any, double timeout, gp_error *err);

/* Cancel the jobs of the words, or all jobs of a profile.
 *   profile  "": those of the words */
gp_status cluster_jobs_cancel(cli_call *call, const char *profile, gp_error *err);

/* Print the log of a job.
 *   follow  print new output until the job is over
 *   live    draw curves in place of the table of a training, if this host sees the job folder */
gp_status cluster_jobs_log(cli_call *call, bool follow, bool live, gp_error *err);

/* Options of `submit` for a cluster. */
typedef struct cluster_submit {
    const char *profile;
    const char *label;            /* name of the job; "": none */
    const char *time;             /* "24h"; "": as in the profile */
    const char *directory;        /* "": as in the profile, or the current directory */
    const char *const *variables; /* NAME=VALUE, NULL-terminated */
    bool requeue;
    bool dry_run;             /* print what the engine would get */
    const char *const *words; /* command of the job */
    size_t word_count;
    const char *array;    /* name of its array; "": none */
    uint32_t array_index; /* from 1 */
} cluster_submit;

/* Create and lock the record of a job that is not launched yet. With dry_run, only print what the
 * engine would get. */
gp_status cluster_submit_create(cluster_record *record, const cluster_place *place,
                                const cluster_submit *options, gp_error *err);

/* Submit one job, and print its name unless it belongs to an array. */
gp_status cluster_jobs_submit(cli_call *call, cluster_place *place, const cluster_submit *options,
                              gp_error *err);

/* Set `name` to a random name of an array. */
gp_status cluster_array_new(char name[CLUSTER_ARRAY_BYTES], gp_error *err);

#endif
