/* Callbacks of a training: run folder, live picture, messages. */
#include "client/cli/commands/train_session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/jobs/report.h"
#include "client/cli/show.h"
#include "client/cli/train/train_text.h"
#include "common/base/clock.h"

/* For the estimated checkpoint time: bytes per parameter (weights, Adam state, best weights), and
 * the rate of a slow disk. */
enum { STATE_BYTES = 16, DISK_BYTES_PER_S = 100 << 20 };

static void train_change_event(void *context, const gp_layer_change *change)
{
    changes_add(&((gp_session *)context)->changes, change);
}

static void train_note_event(void *context, const char *sentence)
{
    const gp_session *session = context;

    if (!session->options->common.quiet)
        show_line(stderr, sentence);
}

/* Append a line to the run folder's log. */
static void train_log(const gp_session *session, const char *sentence)
{
    if (session->folder.log == NULL)
        return;
    fprintf(session->folder.log, "%s\n", sentence);
    fflush(session->folder.log);
}

/* Print a warning, even with --quiet, and append it to the log. */
static void train_warning_event(void *context, const char *sentence)
{
    gp_session *session = context;

    char text[600];

    size_t used = (size_t)snprintf(text, sizeof(text), "warning: ");

    show_clean(text + used, sizeof(text) - used, sentence);
    fprintf(stderr, "%s\n", text);
    if (session->folder.path[0] == '\0')
        gp_buffer_printf(&session->warnings, NULL, "%s\n", text);
    train_log(session, text);
}

/* Show a message about the running training and append it to the log. */
static void train_print(const gp_session *session, const char *sentence)
{
    train_log(session, sentence);
    if (session->view != NULL && !session->options->common.quiet && !session->options->common.json)
        view_print(session->view, sentence, false);
}

/* Report samples that are excluded because a target is missing.
 *   part    "training" or "validation"
 *   values  targets are numbers */
static void train_print_excluded(const gp_session *session, const char *part, uint64_t count, bool values)
{
    char words[80], text[120];

    if (count == 0)
        return;
    snprintf(text, sizeof(text), "excluded from %s: %s", part,
             show_excluded(words, sizeof(words), count, session->pixels, values));
    train_print(session, text);
}

/* Return how many workers of a group compute on a GPU. */
static uint32_t gpu_workers(const gp_pool *pool, const gp_train_info *info)
{
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < info->workers && rank < pool->grant.slots_count; rank++)
        count += pool->grant.slots[rank].device_kind == GP_DEVICE_CUDA;
    return count;
}

/* Open the run folder and the view, and print the first lines. If the folder cannot be opened, stop
 * the training. */
static void train_begin_event(void *context, const gp_train_info *info)
{
    gp_session *session = context;
    const train_options *options = session->options;
    const cli_call *call = session->call;

    train_text_options(call, info, &session->values);
    if (gp_paths_find(&session->paths, cli_pool_name(call), NULL) != GP_OK)
        session->paths.state_dir[0] = '\0';
    const run_folder_request request = {
        .network = train_name(options),
        .data = options->data,
        .argc = call->argc,
        .argv = call->argv,
        .options = &session->values,
        .metrics_copy = given_or_null(options->metrics),
        .folder = given_or_null(options->folder),
        .state_dir = given_or_null(session->paths.state_dir),
        .board = (run_board_mode)options->tensorboard,
    };

    if (run_folder_open(&session->folder, &request, &session->failed) != GP_OK) {
        cli_stop = 2;
        return;
    }
    if (session->folder.log != NULL)
        fputs(gp_buffer_text(&session->warnings), session->folder.log);
    run_folder_facts(&session->folder, info);
    session->pixels = info->pixels;
    session->passes = 3.0 + (info->batch > 0 ? (double)info->validation_samples / info->batch : 0);
    session->state_s = (double)info->parameters * STATE_BYTES / DISK_BYTES_PER_S;
    cli_term_grace_raise(8 + session->state_s);
    bool silent = options->common.quiet || options->common.json;
    char warning[400];

    if (!silent)
        train_text_begin(call, info, gpu_workers(session->pool, info), options->verbose,
                         session->folder.path);
    if (advice_watch_begin(&session->advice, options->network, options->data, call->train, info, warning,
                           sizeof(warning)) &&
        !silent)
        fprintf(stderr, "%s\n", warning);
    session->view = view_new(
        &(view_options){ .out = silent ? NULL : stdout,
                         .log = session->folder.log,
                         .terminal = show_can_redraw(stdout),
                         .live = options->plots == 2 || (options->plots == 0 && show_can_redraw(stdout)),
                         .frequency = (uint32_t)session->values.verbose_frequency });
    if (session->view != NULL)
        view_begin(session->view, info);
    session->slow = slow_steps_new(info->workers);
    train_print_excluded(session, "training", info->excluded, info->classes == 0);
}

static void train_step_event(void *context, const gp_train_step *step)
{
    gp_session *session = context;
    int64_t now_ms = gp_now_ms();
    const pool_usage *usage = &session->pool->usage[step->worker <= GP_WORKERS_MAX ? step->worker : 0];

    run_folder_usage(&session->folder, step->worker, usage->cpu_ms_total, usage->memory_bytes);
    run_folder_step(&session->folder, step, now_ms);
    if (step->rank == 0) {
        /* Adapt the SIGTERM grace period, so that a soft stop has time to finish the current step,
         * to validate, and to write the last checkpoint and the model. The longest time between
         * two steps serves as the step time. */
        if (session->stepped_ms != 0 && cli_stop == 0)
            cli_term_grace_raise((double)(now_ms - session->stepped_ms) * 1e-3 * session->passes +
                                 session->state_s);
        session->stepped_ms = now_ms;
    }
    advice_watch_step(&session->advice, step);
    char text[200];

    if (session->slow != NULL && slow_steps_add(session->slow, step, now_ms, text, sizeof(text)))
        train_print(session, text);
    if (session->view == NULL)
        return;
    view_step(session->view, step);
    if (cli_stop > session->stop_reported) {
        session->stop_reported = cli_stop;
        view_print(session->view,
                   cli_stop == 1 ? "stopping after this step; press Ctrl-C again to stop at once"
                                 : "stopping at once; the model is discarded",
                   true);
    }
}

static void train_check_event(void *context, const gp_train_validation_result *check)
{
    gp_session *session = context;

    run_folder_validation(&session->folder, check);
    session->advice.skip = true;
    if (session->view != NULL)
        view_check(session->view, check);
    if (!session->excluded_noted)
        train_print_excluded(session, "validation", check->excluded, isnan(check->accuracy));
    session->excluded_noted = session->excluded_noted || check->excluded > 0;
}

static void train_check_progress_event(void *context, const gp_train_validation_progress *progress)
{
    const gp_session *session = context;

    if (session->view != NULL)
        view_check_progress(session->view, progress);
}

static void train_regroup_event(void *context, const gp_train_rescale *regroup)
{
    gp_session *session = context;

    run_folder_regroup(&session->folder, regroup);
    if (session->slow != NULL)
        slow_steps_reset(session->slow, regroup->workers);
    if (session->view != NULL)
        view_regroup(session->view, regroup);
}

gp_train_events train_events(gp_session *session)
{
    return (gp_train_events){ .begin = train_begin_event,
                              .step = train_step_event,
                              .check = train_check_event,
                              .context = session,
                              .change = train_change_event,
                              .note = train_note_event,
                              .check_progress = train_check_progress_event,
                              .warning = train_warning_event,
                              .regroup = train_regroup_event };
}
