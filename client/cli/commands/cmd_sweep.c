/* `gradpool sweep`: find good options of a training or program. */
#include <math.h>
#include <unistd.h>

#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/jobs/job_self.h"
#include "client/cli/jobs/job_wait.h"
#include "client/cli/show.h"
#include "client/cli/sweep/sweep_export.h"
#include "client/cli/sweep/sweep_find.h"
#include "client/cli/sweep/sweep_live.h"
#include "client/cli/sweep/sweep_picture.h"
#include "client/cli/sweep/sweep_repeats.h"
#include "client/cli/sweep/sweep_show.h"
#include "client/cli/sweep/sweep_verbs.h"
#include "client/cli/sweep/sweep_words.h"
#include "common/base/clock.h"
#include "proto/local/paths.h"

enum { ROWS = 10 };

/* State of the callbacks. */
typedef struct sweeping {
    cli_call *call;
    const sweep_plan *plan;
    bool lines;       /* print a line for each trial that ends */
    sweep_live *live; /* table in place of the lines; NULL: none */
} sweeping;

static bool is_verb(const cli_call *call, const char *verb)
{
    return call->word_count > 0 && strcmp(call->words[0], verb) == 0;
}

static int sweep_check(cli_call *call)
{
    const sweep_options *options = call->options;

    if (!is_verb(call, "show") && (cli_given(call, "csv") || cli_given(call, "optuna") ||
                                   cli_given(call, "plot") || cli_given(call, "sort")))
        return cli_usage(call, "--csv, --optuna, --plot and --sort belong to gradpool sweep show SWEEP");
    if (is_verb(call, "show") || is_verb(call, "end"))
        return call->word_count == 2 && call->rest_count == 0
                   ? CLI_OK
                   : cli_usage(call, "usage: gradpool sweep %s SWEEP", call->words[0]);
    if (is_verb(call, "add"))
        return call->word_count >= 3 && call->rest_count == 0
                   ? CLI_OK
                   : cli_usage(call, "usage: gradpool sweep add SWEEP NAME=VALUE...");
    if (is_verb(call, "retry"))
        return call->word_count == 3 && call->rest_count == 0
                   ? CLI_OK
                   : cli_usage(call, "usage: gradpool sweep retry SWEEP TRIAL");
    if (options->resume[0] == '\0')
        return sweep_words_check(call);
    return cli_given(call, "folder") ? cli_usage(call, "--resume names the folder; remove --folder") : CLI_OK;
}

/* ---- verbs ---- */

static gp_status show_sweep(cli_call *call, gp_error *err)
{
    const sweep_options *options = call->options;
    sweep_folder folder;
    sweep_plan plan;
    sweep *core = NULL;
    char *importance = NULL, path[SWEEP_PATH_MAX];
    gp_status status = sweep_find_folder(path, call, call->words[1], err);

    sweep_plan_init(&plan);
    if (status == GP_OK)
        status = sweep_folder_open(&folder, path, false, &plan, err);
    if (status == GP_OK)
        status = sweep_load(&core, &importance, &folder, &plan, err);
    if (status == GP_OK && options->csv[0] != '\0')
        status = sweep_export_csv(options->csv, core, &folder, &plan, err);
    if (status == GP_OK && options->optuna[0] != '\0')
        status = sweep_export_optuna(options->optuna, core, &folder, &plan, err);
    if (status == GP_OK && options->plot[0] != '\0')
        status = sweep_picture_write(options->plot, core, &plan, err);
    if (status == GP_OK && options->common.json)
        status = sweep_show_json(core, &folder, &plan, importance, err);
    else if (status == GP_OK)
        status = sweep_show_table(core, &folder, &plan, 0, options->sort, err);
    if (status == GP_OK && !options->common.json) {
        sweep_show_summary(core, &folder, &plan, importance);
        sweep_repeats_show(core, &plan);
    }
    gp_buffer_free(importance);
    sweep_free(core);
    sweep_plan_deinit(&plan);
    return status;
}

/* Cancel the job of a sweep, if the word is its number. Return whether that ends the sweep. */
static bool cancel_job(const cli_call *call, const char *word)
{
    gp_pool *pool = NULL;
    uint32_t count = 0;
    uint64_t job;

    if (job_number(word, &job, NULL) == GP_OK && cli_open(call, true, &pool, NULL) == GP_OK)
        gp_job_cancel(&count, pool, job, NULL);
    gp_pool_close(pool);
    return count > 0;
}

/* Cancel the job of a cluster whose sweep is to end. The controller may be on another host. */
static gp_status cancel_cluster_job(cli_call *call, gp_error *err)
{
    cli_call cancel = *call;
    gp_status status;

    cancel.words[0] = call->words[1];
    cancel.word_count = 1;
    status = cluster_jobs_cancel(&cancel, "", err);
    call->code = cancel.code;
    return status;
}

/* Interrupt the controller of a sweep. */
static gp_status end_sweep(cli_call *call, gp_error *err)
{
    sweep_folder folder;
    sweep_plan plan;
    char path[SWEEP_PATH_MAX];
    gp_status status = sweep_find_folder(path, call, call->words[1], err);
    int pid;

    sweep_plan_init(&plan);
    if (status == GP_OK)
        status = sweep_folder_open(&folder, path, false, &plan, err);
    sweep_plan_deinit(&plan);
    if (status != GP_OK)
        return status;
    if (strcmp(path, call->words[1]) != 0 && cluster_word(call->words[1]))
        return cancel_cluster_job(call, err);
    pid = sweep_folder_controller(folder.path);
    if (pid == 0)
        return gp_fail(err, GP_ESTATE, "no process on this host runs the sweep %s", call->words[1]);
    if (strcmp(path, call->words[1]) != 0 && cancel_job(call, call->words[1]))
        return GP_OK; /* the state of the job is "canceled", not "failed" */
    /* not SIGTERM: a command in a job of a cluster ignores it */
    if (kill(pid, SIGINT) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot signal process %d", pid);
    return GP_OK;
}

/* ---- running ---- */

/* Open the pool of the trials. As for a team, there is no new pool after an orderly shutdown, which
 * removes the record of the pool. */
static gp_status open_pool(void *context, bool again, gp_pool **pool, gp_error *err)
{
    const sweeping *s = context;
    bool elsewhere = true;
    gp_paths paths;
    gp_status status;

    if (again && cli_elsewhere(s->call, &elsewhere, err) == GP_OK && !elsewhere &&
        gp_paths_find(&paths, cli_pool_name(s->call), err) == GP_OK && access(paths.record, F_OK) != 0)
        return gp_fail(err, GP_ENOPOOL, "pool %s was shut down; its trials restart with the next pool",
                       paths.pool);
    status = cli_open(s->call, false, pool, err);
    return again && status == GP_ENOPOOL ? GP_EPEER : status; /* another host may only be unreachable */
}

static void show_trial(void *context, const sweep *core, uint32_t trial)
{
    const sweeping *s = context;

    if (s->lines && s->live == NULL)
        sweep_show_end(core, s->plan, trial);
}

static void draw(void *context, const sweep *core)
{
    const sweeping *s = context;

    if (s->live == NULL)
        return;
    ((cli_common *)s->call->options)->quiet = true; /* notes would overwrite the table */
    sweep_live_draw(s->live, core, gp_now_ms());
}

/* Show a message: below the live table, else as other commands do. */
static void note(void *context, const char *text)
{
    const sweeping *s = context;

    if (s->live != NULL)
        sweep_live_note(s->live, text, gp_now_ms());
    else
        cli_note(s->call, text);
}

/* Open the folder of the sweep: the one of --resume, the one that an earlier attempt of this job
 * created, or a new one. */
static gp_status open_folder(const cli_call *call, sweep_folder *folder, sweep_plan *plan, gp_error *err)
{
    const sweep_options *options = call->options;
    const char *path = options->folder[0] != '\0' ? options->folder : NULL;
    char own[600], record[620], resumed[SWEEP_PATH_MAX];
    gp_status status;

    if (options->resume[0] != '\0') {
        status = sweep_find_folder(resumed, call, options->resume, err);
        if (status == GP_OK)
            status = sweep_folder_open(folder, resumed, true, plan, err);
        if (status != GP_OK)
            return status;
        status = sweep_words_resume(call, plan, err);
        if (status == GP_OK)
            status = sweep_folder_save(folder, plan, err); /* for the next controller */
        if (status != GP_OK)
            sweep_folder_close(folder);
        return status;
    }
    if (path == NULL && job_self_folder() != NULL) {
        snprintf(own, sizeof(own), "%s/sweep", job_self_folder());
        path = own;
    }
    if (job_self_folder() != NULL && path != NULL) {
        snprintf(record, sizeof(record), "%.600s/sweep.json", path);
        if (access(record, F_OK) == 0)
            return sweep_folder_open(folder, path, true, plan, err);
    }
    status = sweep_words_plan(call, plan, err);
    return status == GP_OK ? sweep_folder_create(folder, path, sweep_words_network(call), plan, err) : status;
}

/* Return why a sweep ended before its last trial; NULL: it did not. */
static const char *ending_of(sweep_reason reason, const sweep_plan *plan)
{
    switch (reason) {
    case SWEEP_REASON_EXHAUSTED:
        return plan->trials < SWEEP_TRIALS_MAX ? "all points of the space were tried" : NULL;
    case SWEEP_REASON_GOAL:
        return "a trial reached --until";
    case SWEEP_REASON_TIME:
        return "the time limit was reached";
    default:
        return NULL;
    }
}

/* Print the results of a sweep. */
static gp_status report(const cli_call *call, const sweep *core, const sweep_folder *folder,
                        const sweep_plan *plan, sweep_reason reason, const char *importance, gp_error *err)
{
    const sweep_options *options = call->options;

    if (options->common.json)
        return sweep_show_json(core, folder, plan, importance, err);
    sweep_show_table(core, folder, plan, ROWS, "", err);
    sweep_show_summary(core, folder, plan, importance);
    sweep_repeats_show(core, plan);
    if (ending_of(reason, plan) != NULL)
        printf("ended: %s\n", ending_of(reason, plan));
    if (reason == SWEEP_REASON_HALTED || reason == SWEEP_REASON_NONE)
        printf("continue: gradpool sweep --resume %s\n", folder->path);
    return GP_OK;
}

/* Return the reason of the first trial that failed, or, with `before`, the words that introduce
 * it. */
static const char *first_text(const sweep *core, bool before)
{
    for (uint32_t trial = 1; trial <= sweep_count(core); trial++)
        if (sweep_find(core, trial)->text != NULL)
            return before ? "; the first one " : sweep_find(core, trial)->text;
    return "";
}

static gp_status run_sweep(cli_call *call, sweep_folder *folder, const sweep_plan *plan, gp_error *err)
{
    const sweep_options *options = call->options;
    sweeping s = { .call = call, .plan = plan, .lines = !options->common.json && !options->common.quiet };
    sweep_run_options run = { .open_pool = open_pool,
                              .on_trial = show_trial,
                              .on_poll = draw,
                              .note = note,
                              .context = &s,
                              .stop = &cli_stop };
    sweep *core = NULL;
    char *importance = NULL;
    sweep_reason reason = SWEEP_REASON_NONE;
    gp_error ignored;
    gp_status status = sweep_words_run(call, &run, err);

    if (status != GP_OK)
        return status;
    if (s.lines)
        sweep_show_head(folder, plan);
    if (s.lines && show_can_redraw(stdout))
        sweep_live_new(&s.live, stdout, plan, &ignored); /* without memory: lines */
    cli_catch_interrupts();
    status = sweep_run(&core, &reason, &importance, folder, plan, &run, err);
    sweep_live_free(s.live);
    if (core != NULL && sweep_count(core) > 0)
        report(call, core, folder, plan, reason, importance, &ignored);
    gp_buffer_free(importance);
    if (status == GP_OK && core != NULL && sweep_best(core) == 0 && reason != SWEEP_REASON_HALTED)
        status = gp_fail(err, GP_EINVAL, "no trial is done%s%s", first_text(core, 1), first_text(core, 0));
    sweep_free(core);
    if (reason == SWEEP_REASON_HALTED || status == GP_ECANCELED)
        call->code = CLI_INTERRUPTED;
    return status;
}

static gp_status sweep_main(cli_call *call, gp_error *err)
{
    sweep_folder folder;
    sweep_plan plan;
    gp_status status;

    if (is_verb(call, "show"))
        return show_sweep(call, err);
    if (is_verb(call, "end"))
        return end_sweep(call, err);
    if (is_verb(call, "add"))
        return sweep_verb_add(call, call->words + 1, call->word_count - 1, err);
    if (is_verb(call, "retry"))
        return sweep_verb_retry(call, call->words + 1, err);
    sweep_plan_init(&plan);
    status = open_folder(call, &folder, &plan, err);
    if (status == GP_OK) {
        sweep_link_folder(&folder);
        status = run_sweep(call, &folder, &plan, err);
        sweep_folder_close(&folder);
    }
    sweep_plan_deinit(&plan);
    return status;
}

const cli_command cli_command_sweep = {
    .name = "sweep",
    .summary = "find good options of a training or program with many trials",
    .usage = "NAME=VALUES... [options] -- train ...|PROGRAM... | --resume SWEEP | show SWEEP | end SWEEP | "
             "add SWEEP NAME=VALUE... | retry SWEEP TRIAL",
    .description =
        "Run one training per point of a space of options, several at a time, and report the best. NAME is "
        "an option of `gradpool train` without --; VALUES is a list (32,64,128), a range (0.5:0.99), a "
        "logarithmic range (log:1e-4:0.3), or LOW:STEP:HIGH. Each trial is a background job of the pool.\n\n"
        "A command that does not begin with `train` is a program. Values replace the placeholders "
        "{NAME}, or follow as --NAME VALUE. The objective is a member of the lines that the program appends "
        "to the file GRADPOOL_METRICS, or else the last number that it prints.\n\n"
        "The folder of the sweep has a journal of all trials. The command may be killed at any moment, even "
        "with the pool or the host: --resume SWEEP continues, and does not repeat complete "
        "trials. Ctrl-C stops the running trials at a step; --resume continues them from their last "
        "checkpoint. With --trials N it runs more trials.\n\n"
        "SWEEP is the folder of a sweep, or the number of the job that runs it.\n\n"
        "`add` runs one more trial with given values; `retry` runs a failed, lost or stopped trial "
        "again. Both go to the running sweep, or wait for --resume.\n\n"
        "With --stop asha a trial ends early if its value at a rung is not among the best third so far; the "
        "rungs are at 1, 3, 9, ... epochs. --workers N:M gives each trial N to M workers: the running trials "
        "share the workers of the pool.",
    .examples =
        "  gradpool sweep lr=log:1e-4:0.3 momentum=0.5:0.99 --trials 20 --stop asha -- train --network "
        "lenet --data digits --epochs 9\n"
        "  gradpool sweep solver=sgdm,adam mini-batch-size=32,64 -- train --network lenet --data "
        "digits\n"
        "                                   all combinations\n"
        "  gradpool sweep x=real:-5:5 --minimize -- ./prog --x {x}\n"
        "  gradpool sweep show gradpool-sweeps/2026-11-22-181500-lenet --plot trials.png\n"
        "  gradpool sweep --resume gradpool-sweeps/2026-11-22-181500-lenet --trials 40\n",
    .exit_codes = "0: a trial is done; 1: no trial is done, or the sweep failed; 2: usage error; 130: "
                  "interrupted",
    .options = sweep_params,
    .options_bytes = sizeof(sweep_options),
    .words_max = -1,
    .runs = true,
    .check = sweep_check,
    .run = sweep_main,
};
