/* record.h: the record of a cluster job on disk.
 *
 *   ROOT/gp-0123456789abcdef/record.json   the job and its state (machine.h)
 *                           /launch.json   first record.json, used if a later one is empty
 *                           /lock          locked by the command that works on the job
 *                           /command.json  as the job runs it (job_folder.h)
 *   ROOT/PROFILE-4803                      symbolic link to the folder of the job with that id
 *
 * ROOT is the folder of the profile if this host sees it; then the record's folder is also the job
 * folder. Otherwise it is a folder of the state directory. record.json is replaced by rename, so a
 * reader without the lock gets a complete, possibly old record. Before a launch it is synced,
 * together with command.json. The kernel releases the lock when the command exits, however it
 * exits. File systems without flock() give no lock: see gp_file_lock().
 *
 * If other users can write to ROOT, only folders of this user count: a record decides which
 * commands are launched and which jobs are canceled. */
#ifndef GP_CLUSTER_RECORD_H
#define GP_CLUSTER_RECORD_H

#include "client/cluster/machine.h"
#include "client/cluster/profile.h"

enum {
    CLUSTER_PATH_BYTES = 1024,
    CLUSTER_RECORDS_MAX = 100000, /* jobs in one folder */
    CLUSTER_ARRAY_BYTES = 11,     /* "a-" and 8 hexadecimal digits */
};

typedef struct cluster_record {
    char path[CLUSTER_PATH_BYTES]; /* folder of the record */
    char profile[GP_PROFILE_NAME_MAX + 1];
    char label[64];                  /* name given by the user; "": none */
    char command[96];                /* beginning of the command line, for listings */
    int64_t submitted_ms;            /* Unix time */
    int64_t time_s;                  /* time limit; 0: as in the profile */
    bool requeue;                    /* the job may be requeued */
    char array[CLUSTER_ARRAY_BYTES]; /* jobs submitted together have the same name; "": none */
    uint32_t array_index;            /* number of the job in its array, from 1 */
    cluster_job job;
    int lock;     /* open lock file; -1: not locked */
    char *stored; /* text on disk, to skip equal writes; NULL: unknown; owned */
} cluster_record;

/* Create the folder of a job in state WANTED, with command.json, and lock it. The record itself
 * appears with the first cluster_record_store(), before the launch. If this process is killed in
 * between, cluster_record_discard() removes the folder.
 *   record          the caller sets label, command, profile, submitted_ms, time_s, requeue, array
 *   root            existing directory
 *   json, bytes     contents of command.json
 * GP_EIO. Free the record with cluster_record_close(). */
gp_status cluster_record_create(cluster_record *record, const char *root, const char *json, size_t bytes,
                                gp_error *err);

/* Read a record without a lock. A record that was open is closed first; record->job.seen is kept.
 * GP_ENOENT: no such job. GP_EPERM: of another user. GP_ECORRUPT, GP_EVERSION: malformed, or
 * written by a newer gradpool. */
gp_status cluster_record_read(cluster_record *record, const char *root, const char *name, gp_error *err);

/* Lock a record, then read it.
 *   wait_ms  how long to wait for the lock
 * GP_EBUSY: another command holds the lock. Other errors as for cluster_record_read(). */
gp_status cluster_record_open(cluster_record *record, const char *root, const char *name, int wait_ms,
                              gp_error *err);

/* Write a locked record, unless it equals the one on disk. */
gp_status cluster_record_store(cluster_record *record, gp_error *err);

/* Release the lock and the memory. The other members stay valid. Accepts a closed record. */
void cluster_record_close(cluster_record *record);

/* Call visit() with the launch name of each folder of this user, in no order, until it returns
 * another status than GP_OK. No ROOT: GP_OK. GP_ELIMIT: more than CLUSTER_RECORDS_MAX. */
gp_status cluster_records_list(const char *root,
                               gp_status (*visit)(void *context, const char *name, gp_error *err),
                               void *context, gp_error *err);

/* Find a job of a profile by the engine's id, or by its launch name. Profiles can share ROOT.
 * GP_ENOENT: no such job. */
gp_status cluster_record_find(char name[CLUSTER_NAME_BYTES], const char *root, const char *profile,
                              const char *id, gp_error *err);

/* Remove a folder without a record, which a killed `submit` left: nothing was launched. Folders
 * that are locked or younger than a minute are kept. */
void cluster_record_discard(const char *root, const char *name);

#endif
