/* parfor job log (--joblog): one line per finished job, in the columns of GNU parallel, so that
 * tools for GNU parallel logs work.
 *
 *   Seq  Host  Starttime  JobRuntime  Send  Receive  Exitval  Signal  Command       (tab-separated)
 *
 * Host is "worker N". After --timeout, Exitval is -1 and Signal is 15. For a lost job, Exitval is
 * -1 and Signal is 0. */
#ifndef GP_CLI_JOBLOG_H
#define GP_CLI_JOBLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct cli_joblog cli_joblog;

/* Treatment of an existing job log. */
typedef enum joblog_resume {
    JOBLOG_FRESH,         /* overwrite the file */
    JOBLOG_RESUME,        /* skip all jobs in the log */
    JOBLOG_RESUME_FAILED, /* skip the successful jobs in the log */
} joblog_resume;

/* Contents of one line of the job log. */
typedef struct joblog_line {
    uint64_t job;
    uint32_t worker; /* worker index, from 1; 0: local mode */
    double start;    /* seconds since 1970 */
    double seconds;
    uint64_t bytes; /* bytes of standard output; 0: not counted */
    int exit_code, signal;
    const char *command;
} joblog_line;

enum { JOBLOG_JOB_MAX = 1 << 28 }; /* highest job number that --resume supports */

/* Open the job log. With `resume`, read the old lines first and append new ones.
 *
 * GP_EINVAL: the file is not a job log. GP_ELIMIT: a job number exceeds JOBLOG_JOB_MAX. */
gp_status joblog_open(cli_joblog **out, const char *path, joblog_resume resume, gp_error *err);

/* Read the job log as joblog_open() does, but open it only for reading. Only joblog_done() and
 * joblog_close() may follow. */
gp_status joblog_read(cli_joblog **out, const char *path, joblog_resume resume, gp_error *err);

/* Return whether an earlier run finished the job, so that this run skips it. joblog NULL: false. */
bool joblog_done(const cli_joblog *joblog, uint64_t job);

/* Append and flush one line. */
gp_status joblog_write(cli_joblog *joblog, const joblog_line *line, gp_error *err);

/* Close the job log; accepts NULL. GP_EIO: the last lines could not be written. */
gp_status joblog_close(cli_joblog *joblog, gp_error *err);

#endif
