/* `gradpool logs`: print a job's output, and follow it with -f. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/jobs/job_view.h"
#include "client/cli/jobs/job_wait.h"
#include "client/cli/show.h"
#include "client/pool/remote.h"

typedef struct logs_options {
    cli_common common;
    bool follow;
    int plots;
} logs_options;

static const char *const plots_words[] = { "auto", "none", "live", NULL };

static const gp_param logs_params[] = {
    { .name = "follow",
      .alias = "f",
      GP_PARAM_FIELD(logs_options, follow),
      .help = "print new output until the job ends; Ctrl-C detaches" },
    { .name = "plots",
      GP_PARAM_FIELD(logs_options, plots),
      .words = plots_words,
      .help = "with --follow: live curves of a training, or text" },
    CLI_REMOTE_PARAMS(logs_options),
    CLI_COMMON_PARAMS(logs_options),
    { 0 },
};

/* Poll interval of -f for local and remote jobs. */
enum { FOLLOW_MS = 100, FOLLOW_ELSEWHERE_MS = 300 };

/* Reader of a job's log. It reads by offset, so any number of readers can run without affecting the
 * job. */
typedef struct gp_tail {
    char path[240];
    int fd; /* -1: the file does not exist yet */
    uint64_t job;
    /* Remote jobs: the log is read through the scheduler. */
    uint64_t offset, file; /* file 0: the log does not exist yet */
} gp_tail;

/* Print all new remote log text. *written is set to false if standard output fails. */
static gp_status tail_fetch(gp_tail *tail, gp_pool *pool, bool *written, gp_error *err)
{
    static pool_piece piece;

    do {
        gp_status status = pool_job_read(pool, tail->job, GP_JOB_FILE_LOG, 0, tail->offset, &piece, err);

        if (status != GP_OK)
            return status;
        tail->file = piece.at.file;
        tail->offset += piece.bytes;
        *written = fwrite(piece.text, 1, piece.bytes, stdout) == piece.bytes && fflush(stdout) == 0;
    } while (*written && piece.bytes > 0);
    return GP_OK;
}

static bool tail_open(gp_tail *tail)
{
    if (tail->fd < 0)
        tail->fd = open(tail->path, O_RDONLY | O_CLOEXEC);
    return tail->fd >= 0;
}

/* Print all new local log text. false: standard output failed. */
static bool tail_print(gp_tail *tail)
{
    char text[1 << 16];
    ssize_t got;

    if (!tail_open(tail))
        return true;
    while ((got = read(tail->fd, text, sizeof(text))) > 0 || (got < 0 && errno == EINTR))
        if (got > 0 && fwrite(text, 1, (size_t)got, stdout) != (size_t)got)
            return false;
    return fflush(stdout) == 0;
}

static int logs_check(cli_call *call)
{
    if (call->word_count != 1)
        return cli_usage(call, "%s job? usage: gradpool logs JOB [-f]",
                         call->word_count == 0 ? "which" : "more than one");
    return cluster_word(call->words[0]) ? CLI_OK : job_numbers_check(call);
}

/* Print the end of the log after a live picture: only the text after the last table line, because
 * the picture replaced the rest. */
static bool tail_print_end(gp_tail *tail)
{
    static char text[(1 << 14) + 1];
    off_t size = tail_open(tail) ? lseek(tail->fd, 0, SEEK_END) : 0;
    off_t from = size > (off_t)sizeof(text) - 1 ? size - (off_t)sizeof(text) + 1 : 0;
    ssize_t got = size > 0 ? pread(tail->fd, text, sizeof(text) - 1, from) : 0;
    const char *rest = text;

    text[got > 0 ? got : 0] = '\0';
    for (const char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        if (*line == '|')
            rest = end + 1;
    return fputs(rest, stdout) != EOF;
}

/* Print a job's log while no pool is running; the job folder outlives the pool. false: there is no
 * log. */
static bool print_without_pool(cli_call *call, gp_tail *tail)
{
    const logs_options *options = call->options;
    gp_paths paths;

    if (options->follow || gp_paths_find(&paths, cli_pool_name(call), NULL) != GP_OK)
        return false;
    snprintf(tail->path, sizeof(tail->path), "%s/jobs/%" PRIu64 "/log", paths.state_dir, tail->job);
    call->code = tail_print(tail) ? CLI_OK : CLI_FAILED;
    if (tail->fd < 0)
        return false;
    if (!options->common.quiet)
        fprintf(stderr, "no pool is running; showing the stored output of job %" PRIu64 "\n", tail->job);
    return true;
}

/* Return whether to draw live curves instead of the table of a training. */
static bool wants_curves(const logs_options *options)
{
    return options->plots == 2 || (options->plots == 0 && show_can_redraw(stdout));
}

/* Print the log, and with --follow new output until the job ends or Ctrl-C is pressed. Live curves
 * need local files. */
static gp_status logs_print(cli_call *call, gp_tail *tail, gp_job_info *info, gp_error *err)
{
    const logs_options *options = call->options;
    const bool remote = call->pool->remote != NULL, follow = options->follow;
    const bool live = follow && !remote && wants_curves(options);
    char folder[sizeof(info->folder)];
    job_view *view = NULL;
    gp_status status = GP_OK;
    bool drawn = false, written = true, ended;

    snprintf(folder, sizeof(folder), "%s", info->folder);
    snprintf(tail->path, sizeof(tail->path), "%s/log", folder);
    if (follow || remote)
        cli_catch_interrupts();
    do {
        /* read before the last text, so that no output is missed */
        ended = !follow || gp_job_state_ended(info->state);
        /* the live picture if the job is a training, else the text */
        if (live && view == NULL)
            view = job_view_new(folder, stdout);
        drawn |= view != NULL;
        if (remote && call->pool != NULL)
            status = tail_fetch(tail, call->pool, &written, err);
        else if (!remote && view == NULL)
            written = tail_print(tail);
        else if (!remote && job_view_feed(view)) {
            job_view_free(view);
            view = NULL;
        }
        if (status == GP_OK && !ended && written && cli_stop == 0)
            status = job_wait(call, &call->pool, info, &tail->job, 1, false,
                              remote ? FOLLOW_ELSEWHERE_MS : FOLLOW_MS, err);
        status = status == GP_ETIMEDOUT ? GP_OK : status;
    } while (status == GP_OK && !ended && written && cli_stop == 0);
    job_view_free(view);
    if (cli_stop != 0) {
        fprintf(stderr,
                "\ndetached; job %" PRIu64 " continues; attach again with 'gradpool logs %" PRIu64 " -f'\n",
                tail->job, tail->job);
        call->code = CLI_INTERRUPTED;
        return GP_OK;
    }
    if (drawn)
        written = written && tail_print_end(tail);
    fflush(stdout);
    if (status == GP_OK && follow && !options->common.quiet)
        job_print_end(stderr, info);
    else if (status == GP_OK && tail->fd < 0 && tail->file == 0 && !options->common.quiet)
        fprintf(stderr, "job %" PRIu64 " is %s and has no output yet\n", tail->job,
                gp_job_state_word(info->state));
    call->code = written ? CLI_OK : CLI_FAILED;
    return status;
}

static gp_status logs_run(cli_call *call, gp_error *err)
{
    const logs_options *options = call->options;
    gp_tail tail = { .fd = -1 };
    gp_job_info info;
    gp_status status;

    if (cluster_word(call->words[0]))
        return cluster_jobs_log(call, options->follow, options->follow && wants_curves(options), err);
    status = job_number(call->words[0], &tail.job, err);

    if (status == GP_OK)
        status = job_refresh(call, &call->pool, &info, tail.job, err);
    if (status == GP_OK)
        status = logs_print(call, &tail, &info, err);
    else if (status == GP_ENOPOOL && print_without_pool(call, &tail))
        status = GP_OK;
    if (tail.fd >= 0)
        close(tail.fd);
    return status;
}

const cli_command cli_command_logs = {
    .name = "logs",
    .summary = "print the output of a job; with -f, follow it",
    .usage = "JOB [-f]",
    .description =
        "Print the output of a job, also when the pool is not running. With -f the command prints new "
        "output until the job ends; for a training on a terminal it draws the live curves. Ctrl-C ends "
        "only `logs`; the job continues. JOB is a number of `gradpool jobs`, or PROFILE:ID for a job of a "
        "cluster. For such a job the command prints the reason why the job waits, and then the output of all "
        "its "
        "attempts. The curves need the files of the job on this host, so by ssh there is only text.",
    .examples = "  gradpool logs 7\n"
                "  gradpool logs 7 -f\n"
                "  gradpool logs hpc:4803 -f\n",
    .options = logs_params,
    .options_bytes = sizeof(logs_options),
    .words_max = 3,
    .check = logs_check,
    .run = logs_run,
};
