/* The folder of one cluster job: what the submitting host and the allocation tell each other.
 *
 *   PROFILE_FOLDER/gp-0123456789abcdef/      mode 0700, files 0600
 *     command.json             the command to run; written before the launch
 *     record.json, launch.json the submitter's record (client/cluster/record.h)
 *     cancel                   exists: the user canceled the job
 *     attempts/N/begin.json    attempt N began: host, process, engine's id
 *     attempts/N/end.json      how attempt N ended
 *     attempts/N/result        reserved space; becomes result.json
 *     newest                   number of the newest attempt (common/base/system/fence.h)
 *     log                      output of the command, of all attempts
 *     job.json metrics.jsonl facts.json result/    as in the folder of a local job
 *     result.json              how the job ended; written once
 *     engine.out               output that the engine captured
 *
 * The folder is usually on a network file system. Files appear complete, by a rename within the
 * folder, and mkdir() of attempts/N decides which attempt has number N. No function waits for a
 * lock. All functions take the absolute path of the folder. */
#ifndef GP_CLUSTER_JOB_FOLDER_H
#define GP_CLUSTER_JOB_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/cluster/engine.h"
#include "common/base/error.h"
#include "common/base/memory/buffer.h"
#include "common/base/system/fence.h"
#include "common/base/text/json.h"

enum {
    CLUSTER_COMMAND_JSON_MAX = 1 << 20, /* size of command.json, bytes */
    CLUSTER_RECORD_MAX = 64 << 10,      /* size of the other JSON files, bytes */
    CLUSTER_WORDS_MAX = 4096,
    CLUSTER_VARIABLES_MAX = 256,
    CLUSTER_ATTEMPTS_MAX = 10000,
    CLUSTER_ENGINE_BYTES = 16,
};

/* ---- submitting side ---- */

/* Set `name` to a random launch name: gp- and 16 hex digits. GP_EIO: no random numbers. */
gp_status cluster_name_new(char name[CLUSTER_NAME_BYTES], gp_error *err);

/* Return whether a text has the form of a launch name. */
bool cluster_name_valid(const char *name);

/* The command of a job. */
typedef struct cluster_command {
    const char *engine; /* type of the engine that starts the attempts, such as "slurm" */
    const char *directory;
    mode_t umask;
    bool requeue;       /* the job may be requeued */
    const char **words; /* without "gradpool": train --network ... */
    size_t word_count;
    const char **variables; /* NAME=VALUE */
    size_t variable_count;
    gp_json *document; /* owns the texts of a command that was read; NULL: borrowed texts */
} cluster_command;

/* Append the contents of command.json. GP_ELIMIT: too many words, variables or bytes. GP_EINVAL: a
 * text is not valid UTF-8, so that JSON cannot hold it. */
gp_status cluster_command_format(const cluster_command *command, gp_buffer *out, gp_error *err);

/* Parse the contents of command.json; free *out with cluster_command_deinit(). GP_ECORRUPT: a value
 * is missing or malformed. */
gp_status cluster_command_parse(cluster_command *out, const char *text, size_t bytes, gp_error *err);

/* Like cluster_command_parse() for the file in a folder. GP_ENOENT: no such file. */
gp_status cluster_command_read(cluster_command *out, const char *folder, gp_error *err);

void cluster_command_deinit(cluster_command *command);

/* Create the folder, whose parent must exist, with command.json and attempts/. Nothing is synced:
 * the caller syncs command.json before it launches a job that must survive a power failure.
 *   command, bytes  contents of command.json
 * GP_EBUSY: the folder exists. GP_EIO: it cannot be created. */
gp_status cluster_folder_create(const char *folder, const char *command, size_t bytes, gp_error *err);

/* Create the cancel mark; an existing one is kept. */
gp_status cluster_folder_cancel(const char *folder, gp_error *err);

/* Read the records of all attempts. Missing and incomplete records leave their members zero. GP_OK
 * with zeroed facts: the folder does not exist. GP_EIO: it cannot be read. */
gp_status cluster_folder_facts(const char *folder, cluster_facts *facts, gp_error *err);

/* Return an exit code, or a time in ms, from the JSON of a result. Another version, or a user, may
 * have written it. An exit code that no process can have is 255, and a negative time 0. */
int cluster_exit_code_read(const gp_json *value);
int64_t cluster_time_read(const gp_json *value);

/* ---- attempt ---- */

/* Return whether the cancel mark exists. */
bool cluster_folder_canceled(const char *folder);

/* Take the next attempt number and make it the newest.
 *   fence  fence of the attempt; after an error, its number is unchanged
 *   taken  number that the call took; 0 before the first call. A call that is repeated after an
 *          error keeps this number
 * GP_ESTALE: a newer attempt began meanwhile, or the job has a result (a repeated launch that the
 * engine accepted late); this attempt must end. GP_ELIMIT: more than CLUSTER_ATTEMPTS_MAX
 * attempts. */
gp_status cluster_attempt_take(gp_fence *fence, uint32_t *taken, const char *folder, gp_error *err);

/* Detach processes of earlier attempts from the files that they append to, such as metrics.jsonl:
 * replace each file by a copy, so that such a process continues to write, and to hold a lock, on a
 * file without a name. GP_EIO: a file cannot be copied. */
gp_status cluster_attempt_detach(const char *folder, uint32_t attempt, gp_error *err);

/* Write attempts/N/begin.json: the attempt is running. Reserve space for the result.
 *   host       name of this host, as the engine calls it
 *   engine_id  the engine's id of the job; "": none. The launch name: unknown to the attempt */
gp_status cluster_attempt_begin(const char *folder, uint32_t attempt, const char *host, const char *engine_id,
                                gp_error *err);

/* Write attempts/N/end.json.
 *   reason  why the attempt ended: "finished", "time limit", ... */
gp_status cluster_attempt_end(const char *folder, uint32_t attempt, const char *reason, gp_error *err);

/* Write result.json, unless a newer attempt has begun or a result exists (both GP_ESTALE). */
gp_status cluster_attempt_result(const char *folder, const gp_fence *fence, int exit_code, const char *reason,
                                 gp_error *err);

#endif
