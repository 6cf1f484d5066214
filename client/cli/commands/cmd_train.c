/* `gradpool train`: train a network on the pool's workers, with live output, run folder, and
 * failure report. */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/commands/train_session.h"
#include "client/cli/train/lint.h"
#include "client/cli/jobs/job_self.h"
#include "client/cli/jobs/report.h"
#include "client/cli/show.h"
#include "client/cli/train/train_text.h"
#include "client/cli/view.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "common/model/checkpoint_record.h"
#include "common/model/train_options.h"

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

    if (!job_mark(call, &given, path) || call->train_count == CLI_WORDS_MAX || access(path, F_OK) != 0)
        return;
    steps = gp_malloc(sizeof(*steps));
    gp_status status =
        steps == NULL ? GP_ENOMEM : gp_checkpoint_list_steps(steps, given.checkpoint_path, NULL);

    /* If the list cannot be read, checkpoints may exist. Request a resume, so that train_prepare()
     * reports the error and no new run starts. */
    if (status != GP_ENOENT && (status != GP_OK || steps->count > 0))
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
                            .events = train_events(session),
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
    gp_session session = { .call = call, .options = options, .folder = { .end.fd = -1, .lock = -1 } };
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
        status = gp_file_write_record(path, given.checkpoint_path, strlen(given.checkpoint_path), err);
    gp_train_options_from_checked(&given, call->train);
    if (status == GP_OK && options->folder[0] != '\0') /* the next attempt of a job uses the folder again */
        status = run_folder_claim(&session.folder, options->folder,
                                  resumes(&given) || job_self_folder() != NULL, err);
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
