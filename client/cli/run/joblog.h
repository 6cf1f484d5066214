/* joblog.h -- the file of --joblog: one line a job that has ended, in GNU parallel's columns, so that its tools and
 * habits work.
 *
 *   Seq  Host  Starttime  JobRuntime  Send  Receive  Exitval  Signal  Command            (tabs between)
 *
 * Host is "worker N".  Exitval is -1 and Signal 15 where a job was ended by --timeout, and Exitval -1 with Signal 0
 * where it was lost with its worker or never started. */
#ifndef GP_CLI_JOBLOG_H
#define GP_CLI_JOBLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct cli_joblog cli_joblog;

typedef enum joblog_resume {
    JOBLOG_FRESH,         /* an old file is overwritten */
    JOBLOG_RESUME,        /* jobs that stand there are not run again */
    JOBLOG_RESUME_FAILED, /* only those that succeeded are not run again */
} joblog_resume;

typedef struct joblog_line {
    uint64_t job;
    uint32_t worker;
    double start; /* seconds since 1970 */
    double seconds;
    uint64_t bytes; /* of standard output; 0 = not counted */
    int exit_code, signal;
    const char *command;
} joblog_line;

enum { JOBLOG_JOB_MAX = 1 << 28 }; /* the highest number that is remembered from an old file */

gp_status joblog_open(cli_joblog **out, const char *path, joblog_resume resume, gp_error *err);
bool joblog_done(const cli_joblog *joblog, uint64_t job); /* NULL: false */
gp_status joblog_write(cli_joblog *joblog, const joblog_line *line, gp_error *err);
gp_status joblog_close(cli_joblog *joblog, gp_error *err); /* accepts NULL */

#endif
