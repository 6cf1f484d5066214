/* drive.h: the state machine of a job (machine.h) with its record (record.h), its engine and its
 * job folder. */
#ifndef GP_CLUSTER_DRIVE_H
#define GP_CLUSTER_DRIVE_H

#include "client/cluster/pass.h"
#include "client/cluster/record.h"

/* A profile with its engine and the folder of its records. */
typedef struct cluster_site {
    const gp_profile *profile; /* borrowed */
    const cluster_engine *engine;
    char root[CLUSTER_PATH_BYTES];   /* ROOT of record.h */
    char clock[CLUSTER_CLOCK_BYTES]; /* boot id of this host */
    cluster_tool_prepared *prepared; /* process of the next launch; owned by the caller; NULL: none */
} cluster_site;

/* Describe a profile's site, without I/O on the engine.
 *   engine  NULL: the engine of the profile's type; tests pass their own
 *   state   the user's state directory, for engines whose job folder is elsewhere
 * GP_EUNSUPPORTED: no engine of that type. */
gp_status cluster_site_open(cluster_site *out, const gp_profile *profile, const cluster_engine *engine,
                            const char *state, gp_error *err);

/* Fill a launch from a record. `folder` receives the path of the job folder, which the launch
 * borrows. */
void cluster_site_launch(const cluster_site *site, const cluster_record *record, cluster_launch *out,
                         char folder[CLUSTER_PATH_BYTES]);

/* Do all actions of a locked record that are due: see cluster_pass(). */
gp_status cluster_drive(const cluster_site *site, cluster_record *record,
                        const cluster_shared_listing *shared, cluster_pass_result *result, gp_error *err);

/* Lock a record, read it, drive it and release it.
 *   record   zeroed before the first visit; the same one for further visits of this process
 *   cancel   cancel the job first
 *   wait_ms  how long to wait for the lock
 * GP_EBUSY: another command works on the job. */
gp_status cluster_visit(const cluster_site *site, const char *name, bool cancel, int wait_ms,
                        const cluster_shared_listing *shared, cluster_record *record,
                        cluster_pass_result *result, gp_error *err);

/* Read a part of a file in a job folder, as cluster_engine.read. */
gp_status cluster_file_read(const cluster_site *site, const char *name, const char *path, uint64_t offset,
                            void *to, size_t bytes, size_t *got, gp_error *err);

#endif
