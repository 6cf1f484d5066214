/* `gradpool top`: live view of workers, leases, queue and jobs, refreshed every second.
 *
 * Each frame is printed to memory by the functions behind `status` and `jobs`, then cut to the
 * terminal size. The alternate screen preserves the shell's output. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "client/cli/jobs/report.h"
#include "client/runs/run_reader.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

typedef struct top_options {
    cli_common common;
    bool once;
    double interval;
} top_options;

static const gp_param top_params[] = {
    { .name = "once",
      GP_PARAM_FIELD(top_options, once),
      .help = "print one frame and exit; needs no terminal" },
    { .name = "interval",
      GP_PARAM_FIELD(top_options, interval),
      .fallback = 1,
      .min = 0.1,
      .max = 3600,
      .unit = "seconds",
      .help = "seconds between frames" },
    CLI_REMOTE_PARAMS(top_options),
    CLI_COMMON_PARAMS(top_options),
    { 0 },
};

enum { JOBS_SHOWN = 40, ENDED_SHOWN = 5, METRICS_BYTES = 2048, COMMAND_SHOWN = 28 };

/* ---- one frame ---- */

/* Set the context, a const char *, to the first member that is a curve, and end the iteration. */
static gp_status find_curve(void *context, const char *key, const gp_json *value, gp_error *err)
{
    (void)err;
    if (strcmp(key, "step") == 0 || !gp_json_is_number(value))
        return GP_OK;
    *(const char **)context = key;
    return GP_ECANCELED;
}

/* Set job->reason to the last step and loss of a training, e.g. "step 120, loss 0.3214", or to the
 * first curve of a program. Leave it unchanged if the job has no metrics. */
static void describe_progress(gp_pool *pool, gp_job_info *job)
{
    char text[METRICS_BYTES + 1], folder[300];
    run_line last;
    const report_source source = {
        .folder = folder, .paths = pool->remote == NULL ? &pool->paths : NULL, .pool = pool, .job = job->id
    };
    uint64_t size;

    snprintf(folder, sizeof(folder), "%s/jobs/%" PRIu64, pool->paths.state_dir, job->id);
    text[report_tail(&source, GP_JOB_FILE_METRICS, 0, text, METRICS_BYTES, &size, NULL)] = '\0';
    if (!run_line_last(&last, text))
        return;
    const char *curve = last.kind == RUN_LINE_VALIDATION ? "validation_loss" : "loss";

    if (last.kind == RUN_LINE_OTHER)
        gp_json_each(last.json, find_curve, &curve, NULL);
    snprintf(job->reason, sizeof(job->reason), "step %" PRId64 ", %.40s %.4f",
             gp_json_integer(gp_json_member(last.json, "step"), 0),
             last.kind == RUN_LINE_OTHER ? curve : "loss",
             gp_json_number(gp_json_member(last.json, curve), 0));
    if (strlen(job->command) > COMMAND_SHOWN) /* make room for the progress */
        strcpy(job->command + COMMAND_SHOWN, "...");
    run_line_deinit(&last);
}

static void show_rows(gp_pool *pool, show_table *table, const gp_jobs_reply *jobs, uint32_t most)
{
    for (uint32_t i = 0; i < jobs->rows_count && i < most; i++) {
        gp_job_info info;

        pool_job_info(&info, &jobs->rows[i]);
        if (info.state == GP_JOB_RUNNING)
            describe_progress(pool, &info);
        show_job(table, &info);
    }
}

/* Print the complete pool state to stdout. */
static gp_status print_frame(gp_pool *pool, gp_error *err)
{
    static gp_status_reply *before; /* state of the last frame; NULL: none */
    gp_status_reply *reply = NULL;
    gp_jobs_reply *open = NULL, *ended = NULL;
    gp_status status = pool_status(pool, &reply, err);

    if (status == GP_OK)
        status = pool_jobs_glance(pool, POOL_JOBS_UNFINISHED, JOBS_SHOWN, &open, err);
    if (status == GP_OK)
        status = pool_jobs_glance(pool, 511u & ~POOL_JOBS_UNFINISHED, ENDED_SHOWN, &ended, err);
    if (status == GP_OK)
        show_status(reply, before);
    if (status == GP_OK &&
        open->running + open->queued + open->done + open->failed + open->canceled + open->lost > 0) {
        show_table *table = show_jobs_new();

        printf("\njobs: %" PRIu32 " running, %" PRIu32 " queued, %" PRIu32 " done, %" PRIu32
               " failed, %" PRIu32 " canceled, %" PRIu32 " lost\n\n",
               open->running, open->queued, open->done, open->failed, open->canceled, open->lost);
        show_rows(pool, table, open, JOBS_SHOWN);
        show_rows(pool, table, ended, ENDED_SHOWN);
        show_table_print_free(table);
    }
    if (reply != NULL) {
        gp_free(before);
        before = reply;
    }
    gp_free(open);
    gp_free(ended);
    return status;
}

/* ---- on a terminal ---- */

/* Wait until the next frame is due. true: quit. */
static bool wait_for_key(bool keys, double seconds)
{
    int64_t deadline = gp_now_ms() + (int64_t)(seconds * 1000);

    for (int64_t left; cli_stop == 0 && (left = deadline - gp_now_ms()) > 0;) {
        struct pollfd keyboard = { .fd = keys ? STDIN_FILENO : -1, .events = POLLIN };
        char key;

        if (poll(&keyboard, 1, (int)left) <= 0)
            continue;
        if (read(STDIN_FILENO, &key, 1) != 1)
            keys = false; /* end of input: from now on, only a signal ends the program */
        else if (key == 'q' || key == 'Q')
            return true;
    }
    return cli_stop != 0;
}

/* Draw one frame. If the pool is gone, show the error and try to connect again at the next
 * frame. */
static void draw_live(cli_call *call)
{
    gp_error err;
    gp_status status = call->pool != NULL ? GP_OK : cli_open(call, true, &call->pool, &err);
    char *text = NULL;
    const char *rest;
    uint32_t width, height;
    size_t bytes;
    FILE *terminal = stdout, *memory = open_memstream(&text, &bytes);

    if (memory == NULL)
        return;
    stdout = memory; /* the tables print to stdout */
    if (status == GP_OK)
        status = print_frame(call->pool, &err);
    if (status != GP_OK) {
        printf("%s\n", err.message);
        gp_pool_close(call->pool);
        call->pool = NULL;
    }
    stdout = terminal;
    fclose(memory);
    show_terminal_size(stdout, &width, &height);
    fputs("\033[H", stdout);
    for (rest = text; *rest != '\0' && height > 1; height--) {
        printf("%.*s\033[K\n", (int)show_cut(rest, width), rest);
        rest += strcspn(rest, "\n");
        rest += *rest == '\n';
    }
    printf("\033[J\033[7m q: quit \033[0m%s", *rest != '\0' ? " (more lines than fit)" : "");
    fflush(stdout);
    free(text);
}

static void top_live(cli_call *call)
{
    const top_options *options = call->options;
    struct termios before, raw;
    /* single keys without echo, if standard input is a terminal */
    bool keys = tcgetattr(STDIN_FILENO, &before) == 0;

    if (keys) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        keys = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    cli_catch_interrupts();
    ((cli_common *)call->options)->quiet = true; /* notes would overwrite the frame */
    fputs("\033[?1049h\033[?25l\033[2J", stdout);
    do
        draw_live(call);
    while (!wait_for_key(keys, options->interval));
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static gp_status top_run(cli_call *call, gp_error *err)
{
    if (((const top_options *)call->options)->once || !show_can_redraw(stdout))
        return print_frame(call->pool, err);
    top_live(call);
    return GP_OK;
}

const cli_command cli_command_top = {
    .name = "top",
    .summary = "show workers, leases, queue and jobs continuously",
    .usage = "[--once] [--interval SECONDS]",
    .description =
        "Show workers, leases, queue and jobs, and update them every --interval seconds. On a terminal, "
        "press q to quit. `gradpool status` prints the state once.",
    .examples = "  gradpool top                     exit with q or Ctrl-C\n"
                "  gradpool top --once\n",
    .options = top_params,
    .options_bytes = sizeof(top_options),
    .pool = CLI_POOL_RUNNING,
    .run = top_run,
};
