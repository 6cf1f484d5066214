/* `gradpool train`: train a network on the pool's workers, with live output, run folder, and
 * failure report. */
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/measure/advice.h"
#include "client/cli/cli.h"
#include "client/cli/train/lint.h"
#include "client/cli/jobs/job_self.h"
#include "client/cli/jobs/report.h"
#include "client/cli/jobs/run_folder.h"
#include "client/cli/show.h"
#include "client/cli/train/slow_step.h"
#include "client/cli/train/train_text.h"
#include "client/cli/view.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/model/checkpoint_record.h"
#include "common/model/train_options.h"

typedef struct train_options {
    cli_common common;
    char network[512], data[512], validation_data[512], out[512], metrics[512], folder[512];
    char pretrained[512], classes[24], freeze_up_to[64], image_normalization[160];
    double head_factor[2];
    int lint, plots, tensorboard;
    bool verbose;
} train_options;

static const char *const lint_words[] = { "error", "warn", NULL };
static const char *const plots_words[] = { "auto", "none", "live", NULL };
static const char *const tensorboard_words[] = { "auto", "none", "steps", NULL }; /* run_board_mode */

static const gp_param train_params[] = {
    { .name = "network",
      GP_PARAM_FIELD(train_options, network),
      .basic = true,
      .placeholder = "NETWORK",
      .help = "name (`gradpool model list`), FILE.onnx or FILE.json" },
    { .name = "pretrained",
      GP_PARAM_FIELD(train_options, pretrained),
      .basic = true,
      .placeholder = "MODEL",
      .help = "trained network: FILE.onnx, or a name of `gradpool model get`" },
    { .name = "classes",
      GP_PARAM_FIELD(train_options, classes),
      .basic = true,
      .placeholder = "N|auto",
      .help = "with --pretrained: new classifier for N classes, auto: the number in the data" },
    { .name = "head-learn-rate-factor",
      GP_PARAM_FIELD(train_options, head_factor),
      .fallback = 1,
      .max = 1e6,
      .seed_name = "WeightLearnRateFactor, BiasLearnRateFactor",
      .help = "with --classes: learn-rate factors of the new head's weights and biases" },
    { .name = "freeze-up-to",
      GP_PARAM_FIELD(train_options, freeze_up_to),
      .placeholder = "LAYER",
      .help = "with --pretrained: do not train this layer and all layers before it" },
    CLI_NORMALIZATION_PARAM(train_options, image_normalization),
    { .name = "data",
      GP_PARAM_FIELD(train_options, data),
      .basic = true,
      .placeholder = "SOURCE",
      .help =
          "folder of IDX files, images, tar or npy files; FILE.csv, FILE.tar, FILE.npy; s3://BUCKET/PREFIX; "
          "a name (fashion-mnist); digits[:COUNT]; synthetic:HxWxC:CLASSES:COUNT (docs/data.md)" },
    { .name = "validation-data",
      GP_PARAM_FIELD(train_options, validation_data),
      .seed_name = "ValidationData",
      .basic = true,
      .placeholder = "SOURCE",
      .help = "validation data, or none [test part of --data]" },
    { .name = "out",
      GP_PARAM_FIELD(train_options, out),
      .basic = true,
      .placeholder = "FILE.onnx",
      .help = "file for the model [in the run folder]" },
    { .name = "metrics",
      GP_PARAM_FIELD(train_options, metrics),
      .placeholder = "FILE.jsonl",
      .help = "also write the metrics to FILE.jsonl" },
    { .name = "folder",
      GP_PARAM_FIELD(train_options, folder),
      .placeholder = "DIRECTORY",
      .help = "run folder; with --resume, continue the metrics in it [new folder below gradpool-runs]" },
    { .name = "tensorboard",
      GP_PARAM_FIELD(train_options, tensorboard),
      .words = tensorboard_words,
      .help = "curves for TensorBoard in the run folder: validations and two steps per second, none, or all "
              "steps" },
    { .name = "lint",
      GP_PARAM_FIELD(train_options, lint),
      .words = lint_words,
      .help = "how to handle options without effect: error or warn" },
    { .name = "plots",
      GP_PARAM_FIELD(train_options, plots),
      .words = plots_words,
      .seed_name = "Plots",
      .help = "show live curves on a terminal, or a table" },
    { .name = "verbose",
      GP_PARAM_FIELD(train_options, verbose),
      .help = "print all training options with their values before the first step" },
    CLI_JSON_PARAM(train_options),
    CLI_COMMON_PARAMS(train_options),
    { 0 },
};

/* For the estimated checkpoint time: bytes per parameter (weights, Adam state, best weights), and
 * the rate of a slow disk. */
enum { STATE_BYTES = 16, DISK_BYTES_PER_S = 100 << 20 };

/* `gradpool train` state, shared with the training callbacks. */
typedef struct gp_session {
    const cli_call *call;
    const train_options *options;
    gp_pool *pool;
    gp_train_request request;
    cli_changes changes; /* changes to the pretrained network */
    /* opened when all workers are ready, so that a rejected command leaves no folder behind */
    run_folder folder;
    gp_train_options values; /* effective options */
    gp_paths paths;          /* of the pool; state_dir "": unknown */
    gp_view *view;
    slow_steps *slow;
    int stop_reported; /* cli_stop value last reported to the user */
    gp_error failed;   /* error while opening the run folder; GP_OK: none */
    advice_watch advice;
    gp_buffer warnings;  /* warnings issued before the folder was opened, as lines for the log */
    bool reported;       /* report.json was written */
    bool excluded_noted; /* samples excluded from validation were reported */
    bool pixels;         /* targets are pixel classes */
    int64_t stepped_ms;  /* when the last step was reported; 0: none yet */

    /* for the SIGTERM grace period: step times that a soft stop takes, and seconds to save */
    double passes, state_s;
} gp_session;

static const char *train_name(const train_options *options)
{
    return options->pretrained[0] != '\0' ? options->pretrained : options->network;
}

static const char *given_or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

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
    session->view =
        view_new(&(view_options){ .out = silent ? NULL : stdout,
                                  .log = session->folder.log,
                                  .terminal = isatty(1) == 1,
                                  .live = options->plots == 2 || (options->plots == 0 && isatty(1)),
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

static void train_report(const gp_session *session, const gp_training_summary *summary, const char *model)
{
    advice_result advice;
    const bool known = advice_watch_end(&session->advice, &advice);
    char slowest[200];
    const bool slow = session->folder.workers != NULL &&
                      worker_lines_slowest(session->folder.workers, slowest, sizeof(slowest));

    if (session->options->common.json) {
        json_document json;
        gp_json_writer *writer = show_json_object(&json, true);

        gp_json_put_text(writer, "model", model);
        gp_json_put_text(writer, "folder", session->folder.path);
        gp_json_put_bool(writer, "stopped", summary->stopped);
        gp_json_put_bool(writer, "early_stopped", summary->early_stopped);
        gp_json_put_integer(writer, "epochs", summary->epochs);
        run_folder_put_summary(writer, summary);
        changes_write(&session->changes, writer);
        if (slow)
            gp_json_put_text(writer, "slowest_worker", slowest);
        if (known) {
            gp_json_put_number(writer, "advised_images_per_second", advice.expected);
            gp_json_put_number(writer, "advice_error", advice.expected / advice.measured - 1);
        }
        show_json_print(&json, NULL);
        return;
    }
    if (!session->options->common.quiet)
        printf("\n");
    train_text_end(summary);
    if (known && advice.fresh)
        printf("\n%s", advice.text);
    if (slow && !session->options->common.quiet)
        printf("\n%s", slowest);
    printf("\nmodel: %s\n", model);
}

/* Save the model to --out, or else to the run folder. If --out cannot be written, save the model to
 * the run folder, so that the trained model is not lost. */
static gp_status train_save(const gp_session *session, const gp_training *training, char *model, size_t bytes,
                            gp_error *err)
{
    gp_status status = GP_OK;

    if (session->options->out[0] != '\0') {
        snprintf(model, bytes, "%s", session->options->out);
        status = gp_training_save(training, model, err);
        if (status == GP_OK)
            return GP_OK;
    }
    snprintf(model, bytes, "%s/result/model.onnx", session->folder.path);
    if (status == GP_OK)
        return gp_training_save(training, model, err);
    if (gp_training_save(training, model, NULL) == GP_OK)
        return gp_fail(err, status, "cannot write --out %s; the model is in %s", session->options->out,
                       model);
    return status;
}

/* Check that the file can be written, before a long training starts. */
static gp_status train_check_file(const char *option, const char *path, gp_error *err)
{
    char copy[520], *folder;
    struct stat info;

    if (path[0] == '\0')
        return GP_OK;
    if (path[strlen(path) - 1] == '/' || (stat(path, &info) == 0 && S_ISDIR(info.st_mode)))
        return gp_fail(err, GP_EINVAL, "--%s is %s, a folder; it must be a file", option, path);
    snprintf(copy, sizeof(copy), "%s", path);
    folder = dirname(copy);
    if (access(folder, W_OK | X_OK) != 0)
        return gp_fail_errno(err, GP_EIO, "--%s is %s, but its folder is not writable", option, path);
    return GP_OK;
}

/* Get the training options, and the mark file path in the job folder. false: this is not a job with
 * checkpoints.
 *
 * An attempt of a background job that passed all checks creates the mark. It tells the next attempt
 * that the checkpoints belong to the job, so that the next attempt resumes from them. */
static bool job_mark(const cli_call *call, gp_train_options *given, char path[600])
{
    gp_train_options_from_checked(given, call->train);
    if (job_self_folder() == NULL || given->checkpoint_path[0] == '\0')
        return false;
    snprintf(path, 600, "%s/checkpoints", job_self_folder());
    return true;
}

/* Resume from the checkpoints that an earlier attempt of this job wrote, if there are any. */
static void train_continue_job(cli_call *call)
{
    gp_checkpoint_list *steps;
    gp_train_options given;
    char path[600];

    if (!job_mark(call, &given, path) || call->train_count == CLI_WORDS_MAX)
        return;
    steps = access(path, F_OK) != 0 ? NULL : gp_malloc(sizeof(*steps));
    if (steps != NULL && gp_checkpoint_list_steps(steps, given.checkpoint_path, NULL) == GP_OK &&
        steps->count > 0)
        /* the last value of an option takes effect */
        call->train[call->train_count++] = gp_strdup("resume=auto");
    gp_free(steps);
}

/* Check the training completely before the pool is opened: network, data and options. */
static gp_status train_prepare(gp_session *session, gp_training **training, gp_error *err)
{
    const train_options *options = session->options;
    cli_progress progress;

    cli_progress_begin(session->call, &progress, "samples");
    const gp_progress reports = cli_progress_reports(&progress);

    session->request =
        (gp_train_request){ .network = given_or_null(options->network),
                            .data = options->data,
                            .validation_data = given_or_null(options->validation_data),
                            .options = session->call->train,
                            .events = { .begin = train_begin_event,
                                        .step = train_step_event,
                                        .check = train_check_event,
                                        .context = session,
                                        .change = train_change_event,
                                        .note = train_note_event,
                                        .check_progress = train_check_progress_event,
                                        .warning = train_warning_event,
                                        .regroup = train_regroup_event },
                            .stop = &cli_stop,
                            .pretrained = given_or_null(options->pretrained),
                            .classes = given_or_null(options->classes),
                            .head_learn_rate_factor = { options->head_factor[0], options->head_factor[1] },
                            .freeze_up_to = given_or_null(options->freeze_up_to),
                            .image_normalization = given_or_null(options->image_normalization),
                            .data_progress = &reports };
    gp_status status = gp_training_new(training, &session->request, err);

    cli_progress_end(&progress);
    session->request.data_progress = NULL; /* `reports` goes out of scope */
    return status;
}

static int train_check(cli_call *call)
{
    const train_options *options = call->options;
    gp_error err;
    int code;

    if (train_name(options)[0] == '\0' || options->data[0] == '\0')
        return cli_usage(call, "--%s is missing", train_name(options)[0] == '\0' ? "network" : "data");
    code = lint_training(call, options->lint == 1, strcmp(options->validation_data, "none") != 0);
    if (code != CLI_OK)
        return code;
    if (train_check_file("out", options->out, &err) != GP_OK ||
        train_check_file("metrics", options->metrics, &err) != GP_OK)
        return cli_fail(call, &err);
    return CLI_OK;
}

/* Train on a pool, save the model, and write the results or the failure report. */
static gp_status train_on_pool(gp_session *session, gp_training *training, gp_training_summary *summary,
                               gp_error *err)
{
    gp_pool *pool = NULL;
    gp_lease_request lease = { 0 };
    char model[600];
    gp_status status = cli_open(session->call, false, &pool, err);

    if (status != GP_OK)
        return status;
    session->pool = pool;
    cli_catch_interrupts();
    status = cli_lease_request(session->call, pool, &lease, err);
    if (status == GP_OK)
        status = gp_training_run(training, pool, &lease, err);
    if (session->failed.code != GP_OK) { /* takes precedence: it stopped the training */
        *err = session->failed;
        status = err->code;
    }
    view_free(session->view);
    gp_free(session->slow);
    gp_pool_close(pool);
    if (status == GP_OK)
        status = train_save(session, training, model, sizeof(model), err);
    if (status == GP_OK) {
        gp_training_summarize(training, summary);
        train_report(session, summary, model);
    }
    run_folder_close(&session->folder, status == GP_OK ? summary : NULL, status == GP_OK ? NULL : err);
    /* Write the failure report while the logs are recent. A training that failed before the
     * first step has no folder: the error says it all. A remote pool's logs are on another host. */
    const char *folder = session->folder.path[0] != '\0' ? session->folder.path : job_self_folder();
    gp_paths places;

    if (status != GP_OK && status != GP_ECANCELED && folder != NULL &&
        gp_paths_find(&places, cli_pool_name(session->call), NULL) == GP_OK) {
        report_write(folder, &places, err);
        session->reported = true;
    }
    return status;
}

/* Return whether the options can resume a training. With the id of an earlier run, they do. */
static bool resumes(const gp_train_options *given)
{
    return given->resume[0] != '\0' || given->run_id[0] != '\0';
}

static gp_status train_run(cli_call *call, gp_error *err)
{
    const train_options *options = call->options;
    gp_session session = { .call = call, .options = options, .folder.lock = -1 };
    gp_training *training = NULL;
    gp_training_summary summary = { 0 };
    gp_train_options given;
    char path[600];
    gp_status status;

    gp_buffer_init(&session.warnings, 1 << 16);
    run_folder_start(&session.folder);
    train_continue_job(call);
    status = train_prepare(&session, &training, err);
    if (status == GP_OK && job_mark(call, &given, path)) /* mark the checkpoints as those of this job */
        status = gp_file_write(path, given.checkpoint_path, strlen(given.checkpoint_path), err);
    gp_train_options_from_checked(&given, call->train);
    if (status == GP_OK && options->folder[0] != '\0' && job_self_folder() == NULL)
        status = run_folder_claim(&session.folder, options->folder, resumes(&given), err);
    if (status == GP_OK)
        call->code = lint_transfer(call, options->lint == 1, &session.changes);
    if (status == GP_OK && call->code == CLI_OK) {
        if (!options->common.quiet && !options->common.json)
            changes_print(&session.changes);
        status = train_on_pool(&session, training, &summary, err);
    }
    gp_training_free(training);
    gp_free(session.changes.rows);
    gp_buffer_deinit(&session.warnings);
    if (status != GP_OK)
        call->code = cli_fail(call, err);
    if (session.reported && job_self_folder() == NULL && !options->common.quiet)
        fprintf(stderr, "for details, run: gradpool report %s\n", session.folder.path);
    if (summary.stopped && status == GP_OK)
        call->code = CLI_INTERRUPTED;
    return GP_OK; /* the error is printed above, before the report is named */
}

static const char *const train_sources[] = { "data", "validation-data", NULL };

const cli_command cli_command_train = {
    .name = "train",
    .summary = "train a network on the workers of the pool",
    .usage = "--network NETWORK|--pretrained MODEL --data SOURCE [options]",
    .description =
        "Train a network on all workers of the pool, or on the leased part of them, and write the model "
        "as an ONNX file. The mini-batch is divided among the workers, and gradients are summed over all "
        "samples. A step therefore has the same meaning on any number of workers.\n\n"
        "If a worker fails, the training continues on the others from the last completed step, and a "
        "replacement joins when it is ready. With --checkpoint-path a training can be resumed after a "
        "failure of the host: --resume auto starts a new run or continues the one in the directory.\n\n"
        "The metrics of every step, the model and the settings are in a run folder below gradpool-runs. "
        "The first Ctrl-C stops at the next step and saves the model; the second stops at once.",
    .examples =
        "  gradpool train --network lenet --data digits --epochs 10 --lr 0.1\n"
        "  gradpool train --network lenet --data digits --workers 2 --out digits.onnx\n"
        "  gradpool train --network lenet --data digits --workers 2:4 --min-workers 2\n"
        "  gradpool train --network lenet --data fashion-mnist --lr 0.2 --learn-rate-schedule piecewise "
        "--learn-rate-drop-period 5\n"
        "  gradpool train --pretrained animals.onnx --data vehicles/ --classes auto --head-learn-rate-factor "
        "10,20\n"
        "  gradpool train --pretrained resnet18 --data flowers/ --classes auto --image-size 224,224\n"
        "  gradpool train --network deeplabv3plus:backbone=resnet18 --data camvid --class-weights auto "
        "--augment "
        "'crop=random crop-size=160,160 patches-per-image=8 rotation=-20,20'\n"
        "  gradpool train --pretrained resnet18 --data s3://bucket/flowers --s3-region eu-central-1 "
        "--classes auto\n"
        "  gradpool train --pretrained animals.onnx --data vehicles/ --classes auto --freeze-up-to norm2\n",
    .options = train_params,
    .options_bytes = sizeof(train_options),
    .leases = true,
    .trains = true,
    .check = train_check,
    .sources = train_sources,
    .run = train_run,
};
