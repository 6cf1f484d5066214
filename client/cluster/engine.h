/* Engines: the programs that own the machines of a cluster, such as Slurm, ssh or Kubernetes.
 *
 * An engine is a table of functions that launch, list and cancel jobs. drive.h decides when to call
 * them. Each call returns within CLUSTER_CALL_MS, even if the engine does not reply.
 *
 * A job has two identifiers. The name ("gp-" and 16 random hexadecimal digits) is chosen and stored
 * before the launch, and the engine must show it in its listing. The id is chosen by the engine. */
#ifndef GP_CLUSTER_ENGINE_H
#define GP_CLUSTER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/memory/buffer.h"

typedef struct gp_profile gp_profile; /* settings of one cluster */
typedef struct cluster_tool_prepared cluster_tool_prepared;

enum {
    CLUSTER_CALL_MS = 30000, /* time limit of one engine call */
    CLUSTER_NAME_BYTES = 32,
    CLUSTER_ID_BYTES = 64,
    CLUSTER_TEXT_BYTES = 64,
    CLUSTER_REASON_BYTES = 160,
    CLUSTER_COMMAND_BYTES = 1024,
    CLUSTER_ENTRIES_MAX = 100000, /* entries of one listing */
    CLUSTER_STEPS_MAX = 10000,    /* jobs of one call of steps() */
};

/* Offset of a read: the first quarter of the buffer receives the beginning of the file, then follow
 * a newline and the end of the file. A file that fits into the buffer is read as a whole. */
#define CLUSTER_READ_ENDS UINT64_MAX

/* State of a job in the engine, reduced to the cases that differ for gradpool. */
typedef enum cluster_entry_state {
    CLUSTER_ENTRY_QUEUED,  /* also: suspended, held, waiting to be requeued */
    CLUSTER_ENTRY_RUNNING, /* also: starting, completing; processes of the job may exist */
    CLUSTER_ENTRY_ENDED,   /* no process of the job exists, and the engine will start none */
} cluster_entry_state;

/* One job in an engine's listing. All texts are NUL-terminated and printable. */
typedef struct cluster_entry {
    char name[CLUSTER_NAME_BYTES]; /* launch name */
    char id[CLUSTER_ID_BYTES];
    cluster_entry_state state;
    char text[CLUSTER_TEXT_BYTES];     /* the engine's state: "RUNNING on n2" */
    char reason[CLUSTER_REASON_BYTES]; /* why the job waits or ended; "": unknown */
    int64_t expected_start_s;          /* Unix time; 0: unknown or not queued */
    int exit_code;                     /* of an ended job; -1: unknown, or ended by a signal */
    int signal;                        /* 0: none, or unknown */
    uint32_t restarts;                 /* requeues counted by the engine; 0: none, or unknown */
} cluster_entry;

/* A complete listing: the gradpool jobs of this user. */
typedef struct cluster_listing {
    cluster_entry *entries;
    size_t count, capacity;
} cluster_listing;

/* Append an entry with empty texts and exit_code -1, and return it in *out. The pointer is valid
 * until the next call. GP_ELIMIT: more than CLUSTER_ENTRIES_MAX entries. GP_ENOMEM. */
gp_status cluster_listing_add(cluster_listing *listing, cluster_entry **out, gp_error *err);

/* Free the entries. The listing is empty afterwards and can be used again. */
void cluster_listing_deinit(cluster_listing *listing);

/* A job to launch. All pointers are borrowed for the call. */
typedef struct cluster_launch {
    const char *name;   /* launch name */
    const char *folder; /* job folder, an absolute path on the engine's side: PROFILE_FOLDER/NAME */
    /* Contents of command.json. Used only by engines whose job folder is not visible on this host;
     * for the others the file exists before the launch. */
    const char *command;
    size_t command_bytes;
    int64_t time_s; /* time limit; 0: as in the profile */
    bool requeue;   /* the job may be requeued: it has a checkpoint, or repeating it is harmless */
    cluster_tool_prepared *prepared; /* of prepare(); NULL, or used by an earlier launch: none */
} cluster_launch;

/* Records of a job's attempts, as read from the job folder. A zeroed structure means: no attempt
 * has started. */
typedef struct cluster_facts {
    uint32_t attempt;                 /* newest attempt number; 0: none */
    bool begun;                       /* the newest attempt has written begin.json */
    char host[64];                    /* host of the newest attempt; "": unknown */
    char engine_id[CLUSTER_ID_BYTES]; /* id that the engine gave to the newest attempt; "": unknown */
    /* how the attempt before the newest one ended; "": unknown */
    char attempt_reason[CLUSTER_REASON_BYTES];
    bool canceled;   /* the cancel mark exists */
    bool has_result; /* result.json exists; it is written once */
    uint32_t result_attempt;
    int exit_code;                     /* of the result, 0 to 255 */
    char reason[CLUSTER_REASON_BYTES]; /* of the result; "": none */
    int64_t begin_ms, end_ms;          /* Unix time of the first begin and of the result; 0: unknown */
} cluster_facts;

/* The first and the last step in metrics.jsonl of a job; -1: none, or unknown. */
typedef struct cluster_steps {
    int64_t first, last;
} cluster_steps;

/* Functions of an engine. All are required unless marked optional. */
typedef struct cluster_engine {
    const char *type; /* value of the profile's setting `type` */

    /* Launch a job and set `id`.
     * GP_ETIMEDOUT, GP_EPEER: the outcome is unknown; the engine may still accept the job.
     * Other errors: the engine refused, and the job certainly does not exist. */
    gp_status (*launch)(const gp_profile *profile, const cluster_launch *launch, char id[CLUSTER_ID_BYTES],
                        gp_error *err);

    /* Optional; NULL: a launch needs nothing that takes time. Start the process of the next launch,
     * so that it loads its libraries while the record of the job is written. It launches nothing
     * until launch() gives it the job. Free it with cluster_tool_prepared_free(). NULL: it cannot
     * be started; launch() reports the reason. */
    cluster_tool_prepared *(*prepare)(const gp_profile *profile);

    /* Add all gradpool jobs of this user to `listing`. An incomplete listing is an error. Ended
     * jobs may be missing; queued and running jobs may not. */
    gp_status (*list)(const gp_profile *profile, cluster_listing *listing, gp_error *err);

    /* Request the end of a listed job. GP_OK: the engine accepted the request or does not know the
     * job. The job may still be listed for a while. Repeated calls are harmless. */
    gp_status (*cancel)(const gp_profile *profile, const cluster_entry *entry, gp_error *err);

    /* Append the script or manifest that launch() would give to the engine: `submit --dry-run`. */
    gp_status (*script)(const gp_profile *profile, const cluster_launch *launch, gp_buffer *out,
                        gp_error *err);

    /* Write the command that a user can run to cancel the job, such as "scancel 4803". */
    void (*cancel_command)(const gp_profile *profile, const cluster_entry *entry,
                           char text[CLUSTER_COMMAND_BYTES]);

    /* Optional; NULL: the job folder is visible on this host, and its files are read directly.
     * facts: read the records of a job. No folder: GP_OK with zeroed facts.
     * mark: create the cancel mark, an empty file `cancel` in the job folder.
     * read: read up to `bytes` bytes at `offset` of a file in the job folder, such as "log". *got
     * is smaller only at the end of the file, or with CLUSTER_READ_ENDS. GP_ENOENT: no such
     * file.
     * steps: optional; NULL: each job needs a read. Set the steps of several jobs, at most
     * CLUSTER_STEPS_MAX, in one call. A host without a reply leaves those of its jobs unknown. */
    gp_status (*facts)(const gp_profile *profile, const char *name, cluster_facts *facts, gp_error *err);
    gp_status (*mark)(const gp_profile *profile, const char *name, gp_error *err);
    gp_status (*read)(const gp_profile *profile, const char *name, const char *path, uint64_t offset,
                      void *to, size_t bytes, size_t *got, gp_error *err);
    void (*steps)(const gp_profile *profile, const char (*names)[CLUSTER_NAME_BYTES], size_t count,
                  cluster_steps *steps);

    /* Optional; NULL: only a launch shows it. Ask whether the engine would accept a job, without
     * launching it, and write its answer to `note`. GP_EINVAL: the engine would refuse the job. */
    gp_status (*test)(const gp_profile *profile, const cluster_launch *launch,
                      char note[CLUSTER_REASON_BYTES], gp_error *err);

    /* Optional; NULL: the engine has no command for it. Send a running job the notice with
     * which the engine announces the end of an allocation. */
    gp_status (*notice)(const gp_profile *profile, const cluster_entry *entry, gp_error *err);

    /* Optional.
     * directory: return the default working directory of jobs whose folder is not visible here.
     * check: refuse a job that the engine cannot run without a loss. `words` is its command. */
    const char *(*directory)(const gp_profile *profile);
    gp_status (*check)(const gp_profile *profile, const char *directory, const char *const *words,
                       size_t count, gp_error *err);
} cluster_engine;

/* Return the engine of that type; NULL: no such engine. */
const cluster_engine *cluster_engine_find(const char *type);

/* Engines by index, for lists in help and messages; NULL: past the last one. */
const cluster_engine *cluster_engine_at(size_t index);

#endif
