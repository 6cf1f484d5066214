/* Read and write the parfor job log. */
#include "client/cli/run/joblog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"

static const char heading[] = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

struct cli_joblog {
    FILE *file; /* NULL: only read */
    char path[512];
    uint8_t *done; /* finished jobs, one bit each */
    size_t done_bytes;
};

/* Mark a job as done. GP_ELIMIT: the job number is too large. */
static gp_status done_set(cli_joblog *joblog, uint64_t job, gp_error *err)
{
    size_t at = (size_t)(job / 8);

    if (job > JOBLOG_JOB_MAX)
        return gp_fail(err, GP_ELIMIT, "--joblog %s has job %" PRIu64 "; the maximum for --resume is %d",
                       joblog->path, job, JOBLOG_JOB_MAX);
    if (at >= joblog->done_bytes) {
        size_t bytes = (at + 1) * 2;
        uint8_t *grown = gp_realloc_array(joblog->done, bytes, 1);

        if (grown == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the jobs of %s", joblog->path);
        memset(grown + joblog->done_bytes, 0, bytes - joblog->done_bytes);
        joblog->done = grown;
        joblog->done_bytes = bytes;
    }
    joblog->done[at] |= (uint8_t)(1u << (job % 8));
    return GP_OK;
}

/* Read an earlier run's job log; a missing file is an empty log.
 *   failed_again  treat failed jobs as not done */
static gp_status old_read(cli_joblog *joblog, bool failed_again, gp_error *err)
{
    FILE *old = fopen(joblog->path, "re");
    char *line = NULL;
    size_t room = 0;
    gp_status status = GP_OK;
    bool first = true;

    if (old == NULL)
        return errno == ENOENT ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot read --joblog %s", joblog->path);
    while (status == GP_OK && getline(&line, &room, old) > 0) {
        uint64_t job;
        long exit_code, number;
        int command = 0; /* offset of the Command column; 0: malformed, as after a crash */

        if (first && strcmp(line, heading) != 0)
            status =
                gp_fail(err, GP_EINVAL, "%s is not a job log; --resume needs the file of an earlier --joblog",
                        joblog->path);
        else if (!first &&
                 sscanf(line, "%" SCNu64 "\t%*[^\t]\t%*[^\t]\t%*[^\t]\t%*[^\t]\t%*[^\t]\t%ld\t%ld%*1[\t]%n",
                        &job, &exit_code, &number, &command) == 3 &&
                 command > 0 && job != 0 && strchr(line, '\n') != NULL &&
                 (!failed_again || (exit_code == 0 && number == 0)))
            status = done_set(joblog, job, err);
        first = false;
    }
    free(line);
    fclose(old);
    return status;
}

gp_status joblog_read(cli_joblog **out, const char *path, joblog_resume resume, gp_error *err)
{
    cli_joblog *joblog = gp_calloc(1, sizeof(*joblog));
    gp_status status = GP_OK;

    if (joblog == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a job log");
    if ((size_t)snprintf(joblog->path, sizeof(joblog->path), "%s", path) >= sizeof(joblog->path))
        status = gp_fail(err, GP_ELIMIT, "the path of --joblog is longer than %zu bytes",
                         sizeof(joblog->path) - 1);
    if (status == GP_OK && resume != JOBLOG_FRESH)
        status = old_read(joblog, resume == JOBLOG_RESUME_FAILED, err);
    if (status == GP_OK)
        *out = joblog;
    else
        joblog_close(joblog, NULL);
    return status;
}

gp_status joblog_open(cli_joblog **out, const char *path, joblog_resume resume, gp_error *err)
{
    cli_joblog *joblog;
    gp_status status = joblog_read(&joblog, path, resume, err);

    if (status != GP_OK)
        return status;
    joblog->file = fopen(path, resume == JOBLOG_FRESH ? "we" : "a+e");
    if (joblog->file == NULL) {
        status = gp_fail_errno(err, GP_EIO, "cannot write --joblog %s", path);
        joblog_close(joblog, NULL);
        return status;
    }
    if (resume != JOBLOG_FRESH && fseek(joblog->file, -1, SEEK_END) == 0 && fgetc(joblog->file) != '\n')
        fputc('\n', joblog->file); /* the last line is incomplete, as after a crash */
    fseek(joblog->file, 0, SEEK_END);
    if (ftell(joblog->file) == 0)
        fputs(heading, joblog->file);
    *out = joblog;
    return GP_OK;
}

bool joblog_done(const cli_joblog *joblog, uint64_t job)
{
    return joblog != NULL && job / 8 < joblog->done_bytes && (joblog->done[job / 8] & (1u << (job % 8))) != 0;
}

gp_status joblog_write(cli_joblog *joblog, const joblog_line *line, gp_error *err)
{
    fprintf(joblog->file, "%" PRIu64 "\tworker %" PRIu32 "\t%.3f\t%10.3f\t0\t%" PRIu64 "\t%d\t%d\t",
            line->job, line->worker, line->start, line->seconds, line->bytes, line->exit_code, line->signal);
    for (const char *at = line->command; *at != '\0'; at++)
        fputc(*at == '\n' || *at == '\t' ? ' ' : *at, joblog->file);
    fputc('\n', joblog->file);
    if (fflush(joblog->file) != 0) /* flush each line, so that the log is complete after a crash */
        return gp_fail_errno(err, GP_EIO, "cannot write --joblog %s", joblog->path);
    return GP_OK;
}

gp_status joblog_close(cli_joblog *joblog, gp_error *err)
{
    gp_status status = GP_OK;

    if (joblog == NULL)
        return GP_OK;
    if (joblog->file != NULL && fclose(joblog->file) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot write --joblog %s", joblog->path);
    gp_free(joblog->done);
    gp_free(joblog);
    return status;
}
