/* Jobs of the engine `ssh` on the host that runs them.
 *
 * The processes of a job carry its host and launch name in their environment:
 *
 *   GRADPOOL_SSH_JOB=gpu1/gp-0123456789abcdef
 *
 * So /proc tells which jobs run, also after a reboot, after a process id was used again, and after
 * the process of the attempt was killed while its training lives. The job folder has one more file:
 *
 *   ssh.json    host as in the profile, machine, boot id; process id and start time of the attempt
 *
 * It covers what the environment cannot: a process whose environment is not readable, folders that
 * several hosts share, and a host name that leads to another machine than at the launch. */
#ifndef GP_CLUSTER_SSH_JOBS_H
#define GP_CLUSTER_SSH_JOBS_H

#include <stdbool.h>
#include <sys/types.h>

#include "client/cluster/ssh_wire.h"

#define SSH_JOB_VARIABLE "GRADPOOL_SSH_JOB"

enum {
    SSH_PROCESSES_MAX = 65536,
    SSH_FOLDERS_MAX = 100000,
    SSH_RECENT_S = 3600, /* a job with a result is listed for this time after its end */
    SSH_KILL_S = 25,     /* from the cancel mark until the processes are killed */
};

/* Contents of ssh.json. */
typedef struct ssh_record {
    char host[SSH_HOST_BYTES];
    char machine[65], boot[40]; /* host name and boot id of the machine */
    pid_t pid;                  /* process of the attempt; 0: it has not been started */
    uint64_t start_time;        /* see gp_proc_stat */
} ssh_record;

/* Describe this machine, without a process. */
void ssh_record_init(ssh_record *out, const char *host);

gp_status ssh_record_write(const ssh_record *record, const char *folder, gp_error *err);

/* Read the record of a job folder. GP_ENOENT: no such file. GP_ECORRUPT. */
gp_status ssh_record_read(ssh_record *out, const char *folder, gp_error *err);

/* A process of a job. */
typedef struct ssh_process {
    char host[SSH_HOST_BYTES], name[CLUSTER_NAME_BYTES];
    pid_t pid;
} ssh_process;

/* The processes of all jobs of this user on this machine. */
typedef struct ssh_processes {
    ssh_process *list;
    size_t count, capacity;
} ssh_processes;

gp_status ssh_processes_read(ssh_processes *out, gp_error *err);
void ssh_processes_deinit(ssh_processes *processes);

/* Add the jobs of a host: those that run, and those that ended recently or without a result.
 *   folder  folder of the profile; it need not exist
 * GP_ESTATE: the host name leads to another machine than at the launch of a job. */
gp_status ssh_jobs_list(cluster_listing *out, const char *host, const char *folder, gp_error *err);

/* Return whether a job has live processes here. */
gp_status ssh_job_alive(bool *alive, const char *host, const char *folder, const char *name, gp_error *err);

/* End a job: set the cancel mark and signal the attempt, which ends the command and the pool. Kill
 * the processes SSH_KILL_S after the mark, or if the process of the attempt is gone. GP_OK: also if
 * there is no such job. */
gp_status ssh_job_cancel(const char *host, const char *folder, const char *name, gp_error *err);

/* Set `path` to the folder of a job. */
gp_status ssh_job_folder(char path[SSH_FOLDER_BYTES + CLUSTER_NAME_BYTES], const char *folder,
                         const char *name, gp_error *err);

#endif
