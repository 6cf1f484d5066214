#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/job_wait.h"

typedef struct logs_options {
    cli_common common;
    bool follow;
} logs_options;

static const gp_param logs_params[] = {
    { .name = "follow",
      .alias = "f",
      .type = GP_PARAM_BOOL,
      .offset = offsetof(logs_options, follow),
      .help = "go on until the job ends; -f does the same; Ctrl-C leaves, the job goes on" },
    CLI_COMMON_PARAMS(logs_options),
    { 0 },
};

enum { FOLLOW_MS = 100 };

/* A log that is read by offset: many may look at the same time, nobody disturbs the job. */
typedef struct gp_tail {
    char path[240];
    int fd; /* -1 = it is not there yet */
} gp_tail;

/* Whether all that is there now could be printed. */
static bool tail_print(gp_tail *tail)
{
    char text[1 << 16];
    ssize_t got;

    if (tail->fd < 0)
        tail->fd = open(tail->path, O_RDONLY | O_CLOEXEC);
    if (tail->fd < 0)
        return true;
    while ((got = read(tail->fd, text, sizeof(text))) > 0 || (got < 0 && errno == EINTR)) {
        if (got > 0 && fwrite(text, 1, (size_t)got, stdout) != (size_t)got)
            return false;
    }
    return fflush(stdout) == 0;
}

/* "-f" may stand before or behind the job. */
static int logs_check(cli_call *call)
{
    logs_options *options = call->options;
    uint64_t job;
    gp_error err;
    int count = 0;

    for (int i = 0; i < call->word_count; i++) {
        if (strcmp(call->words[i], "-f") == 0)
            options->follow = true;
        else
            call->words[count++] = call->words[i];
    }
    call->word_count = count;
    if (count != 1)
        return cli_usage(call, "%s job? usage: gradpool logs JOB [-f]",
                         count == 0 ? "which" : "more than one");
    if (job_number(call->words[0], &job, &err) != GP_OK)
        return cli_usage(call, "%s", err.message);
    return CLI_OK;
}

static int detach(const gp_job_info *info)
{
    fprintf(stderr, "\ndetached; job %" PRIu64 " goes on: 'gradpool logs %" PRIu64 " -f' attaches again\n",
            info->id, info->id);
    return CLI_INTERRUPTED;
}

static int logs_follow(const cli_call *call, gp_pool **pool, gp_tail *tail, gp_job_info *info)
{
    const logs_options *options = call->options;
    uint64_t job = info->id;
    gp_error err;

    cli_catch_interrupts();
    for (;;) {
        gp_status status = job_wait(call, pool, info, &job, 1, false, FOLLOW_MS, &err);

        if (!tail_print(tail))
            return CLI_FAILED;
        if (cli_stop != 0)
            return detach(info);
        if (status == GP_OK)
            break;
        if (status != GP_ETIMEDOUT)
            return cli_fail(call, &err);
    }
    if (!options->common.quiet)
        job_say_end(stderr, info);
    return CLI_OK;
}

static int logs_run(cli_call *call)
{
    const logs_options *options = call->options;
    gp_tail tail = { .fd = -1 };
    gp_job_info info;
    gp_pool *pool = NULL;
    uint64_t job;
    gp_error err;
    int code = CLI_OK;
    gp_status status = job_number(call->words[0], &job, &err);

    if (status == GP_OK)
        status = job_look(call, &pool, &info, job, &err);
    if (status != GP_OK) {
        gp_pool_close(pool);
        return cli_fail(call, &err);
    }
    snprintf(tail.path, sizeof(tail.path), "%s/log", info.folder);
    if (!tail_print(&tail))
        code = CLI_FAILED;
    if (code == CLI_OK && options->follow)
        code = logs_follow(call, &pool, &tail, &info);
    else if (tail.fd < 0 && !options->common.quiet)
        fprintf(stderr, "job %" PRIu64 " is %s and has no output yet\n", job, gp_job_state_word(info.state));
    if (tail.fd >= 0)
        close(tail.fd);
    gp_pool_close(pool);
    return code;
}

extern const cli_command cli_command_logs;
const cli_command cli_command_logs = {
    .name = "logs",
    .summary = "what a job has printed, and with -f what it goes on to print",
    .usage = "JOB [-f]",
    .examples = "  gradpool logs 7\n"
                "  gradpool logs 7 -f\n",
    .options = logs_params,
    .options_bytes = sizeof(logs_options),
    .words_max = 3,
    .check = logs_check,
    .run = logs_run,
};
