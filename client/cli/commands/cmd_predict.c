/* `gradpool predict`: run a model on all samples of a source, and write classes and scores in
 * order. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/cli.h"
#include "client/cli/jobs/job_self.h"
#include "client/cli/predict/predict_pixels.h"
#include "client/cli/predict/predict_rows.h"
#include "client/cli/predict/prediction.h"
#include "client/cli/show.h"
#include "common/base/text/text.h"
#include "common/data/store/store.h"

typedef struct predict_options {
    cli_common common;
    prediction_options input;
    char out[512], overlays[512], class_file[512];
    double opacity;
    int64_t top;
    bool ignore_labels;
} predict_options;

static const gp_param predict_params[] = {
    { .name = "model",
      GP_PARAM_FIELD(predict_options, input.model),
      .basic = true,
      .placeholder = "FILE.onnx",
      .help = "trained model" },
    { .name = "data",
      GP_PARAM_FIELD(predict_options, input.data),
      .basic = true,
      .placeholder = "SOURCE",
      .help = "data source, see docs/data.md; its test part if it has one" },
    { .name = "out",
      GP_PARAM_FIELD(predict_options, out),
      .basic = true,
      .placeholder = "FILE|FOLDER",
      .help = "FILE.csv, FILE.jsonl, FILE.npy, or with scores per pixel FOLDER/ for label images; default: "
              "CSV on standard output" },
    { .name = "overlays",
      GP_PARAM_FIELD(predict_options, overlays),
      .basic = true,
      .placeholder = "FOLDER",
      .help = "with scores per pixel: write each image with its classes as a colour overlay" },
    { .name = "opacity",
      GP_PARAM_FIELD(predict_options, opacity),
      .fallback = 0.5,
      .max = 1,
      .help = "opacity of the colours in --overlays" },
    { .name = "class-file",
      GP_PARAM_FIELD(predict_options, class_file),
      .placeholder = "FILE",
      .help = "file with lines name,red,green,blue for label images and overlays; default: from the source" },
    { .name = "top-k",
      GP_PARAM_FIELD(predict_options, top),
      .min = 0,
      .max = ROWS_TOP_MAX,
      .unit = "classes",
      .basic = true,
      .help = "print the N best classes and their scores; 0: all scores" },
    { .name = "ignore-labels",
      GP_PARAM_FIELD(predict_options, ignore_labels),
      .help = "ignore the classes of the data; folders are only names, and no accuracy is computed" },
    CLI_PREDICTION_PARAMS(predict_options),
    CLI_JSON_PARAM(predict_options),
    CLI_COMMON_PARAMS(predict_options),
    { 0 },
};

/* Destination of the rows, and how the rows name samples and scores. */
typedef struct predict_sink {
    rows rows;
    const char *given;       /* --data, as given */
    char absolute[PATH_MAX]; /* --data as the workers see it; "": unknown */
    const char *scores;      /* score meaning; NULL: the rows hold pixel classes */
} predict_sink;

static bool predict_row(void *context, const gp_prediction *p)
{
    predict_sink *sink = context;
    gp_prediction row = *p;

    sink->scores = p->scores == NULL                             ? NULL
                   : strcmp(p->score_type, "probabilities") == 0 ? "probabilities (softmax)"
                   : strcmp(p->score_type, "independent_probabilities") == 0
                       ? "probabilities (sigmoid, independent for each class; the sum need not be 1)"
                       : p->score_type;
    /* a single file: print the name as given on the command line */
    if (strcmp(p->name, sink->absolute) == 0)
        row.name = sink->given;
    return rows_add(&sink->rows, &row);
}

/* Choose the output format by the --out suffix, or else by --json. GP_EINVAL: unknown suffix, or
 * --top-k with an array. */
static gp_status predict_form(rows_form *form, const predict_options *options, gp_error *err)
{
    gp_status status = rows_form_of(form, options->out, err);

    if (status == GP_OK && options->out[0] == '\0' && options->common.json)
        *form = ROWS_JSON;
    if (status == GP_OK && *form == ROWS_ARRAY && options->top > 0)
        return gp_fail(err, GP_EINVAL,
                       "--top-k has no effect with FILE.npy, which has the scores of all classes; drop it, "
                       "or use --out FILE.csv or FILE.jsonl");
    return status;
}

/* Return whether the path is an existing folder or ends with a slash. */
static bool is_folder(const char *path)
{
    const size_t length = strlen(path);
    struct stat info;

    return length > 0 && (path[length - 1] == '/' || (stat(path, &info) == 0 && S_ISDIR(info.st_mode)));
}

/* Return whether images are requested as output. */
static bool draws(const predict_options *options)
{
    return is_folder(options->out) || options->overlays[0] != '\0';
}

/* Predict and write label images and overlays. */
static gp_status predict_draw(prediction *run, gp_pool *pool, gp_evaluation *result, gp_error *err)
{
    const predict_options *options = run->call->options;
    const pixels_request request = { .data = options->input.data,
                                     .labels = options->out,
                                     .overlays = options->overlays,
                                     .class_file = options->class_file,
                                     .on_error = (gp_on_error)options->input.on_error,
                                     .opacity = options->opacity };
    pixels_sink sink;
    gp_status status = pixels_open(&sink, &request, err);

    if (status != GP_OK)
        return status;
    run->on_result = pixels_add;
    run->context = &sink;
    run->pixel_classes = true;
    return pixels_close(&sink, prediction_run(run, pool, result, NULL, err), err);
}

/* Predict and write rows to `path`.
 *   scores  set to the score meaning; NULL: there are no scores */
static gp_status predict_into(prediction *run, gp_pool *pool, const char *path, gp_evaluation *result,
                              const char **scores, gp_error *err)
{
    const predict_options *options = run->call->options;
    predict_sink sink = { .given = options->input.data };
    rows_form form;
    gp_status status = predict_form(&form, options, err);

    if (status == GP_OK)
        status = rows_open(&sink.rows, path, form, (uint32_t)options->top,
                           options->input.on_error == GP_ON_ERROR_SKIP, err);
    if (status != GP_OK)
        return status;
    if (gp_source_absolute(sink.absolute, sizeof(sink.absolute), options->input.data, NULL) != GP_OK)
        sink.absolute[0] = '\0';
    run->on_result = predict_row;
    run->context = &sink;
    run->pixel_classes = form == ROWS_ARRAY;
    status = prediction_run(run, pool, result, NULL, err);
    *scores = sink.scores;
    return rows_close(&sink.rows, status, err);
}

static int predict_check(cli_call *call)
{
    const predict_options *options = call->options;
    rows_form form;
    gp_error err;

    if (options->input.model[0] == '\0' || options->input.data[0] == '\0')
        return cli_usage(call, "--%s is missing", options->input.model[0] == '\0' ? "model" : "data");
    if (draws(options)) {
        if (options->out[0] != '\0' && !is_folder(options->out))
            return cli_usage(
                call, "--overlays cannot be combined with a file in --out; use --out FOLDER/, or drop --out");
        return options->top == 0
                   ? prediction_check(call, &options->input)
                   : cli_usage(call, "--top-k has no effect with label images and overlays; drop it");
    }
    if (options->class_file[0] != '\0')
        return cli_usage(
            call, "--class-file has no effect without images; give --out FOLDER/ or --overlays FOLDER");
    if (predict_form(&form, options, &err) != GP_OK)
        return cli_usage(call, "%s", err.message);
    if (form != ROWS_ARRAY && (options->input.fit == GP_IMAGE_FIT_WINDOWS || cli_given(call, "overlap")))
        return cli_usage(call,
                         "--image-fit windows needs --out FOLDER/, --overlays FOLDER or --out FILE.npy");
    return prediction_check(call, &options->input);
}

static gp_status predict_run(cli_call *call, gp_error *err)
{
    const predict_options *options = call->options;
    gp_evaluation result;
    prediction run;
    char time[40], out[600];
    const char *scores = NULL;

    cli_catch_interrupts();
    snprintf(out, sizeof(out), "%s", options->out);
    /* A background job's standard output is the log, so write the rows to the result folder. */
    if (out[0] == '\0' && job_self_folder() != NULL)
        job_self_result(options->common.json ? "predictions.jsonl" : "predictions.csv", out, sizeof(out));
    prediction_init(&run, call, &options->input);
    run.ignore_labels = options->ignore_labels;
    gp_status status = draws(options) ? predict_draw(&run, call->pool, &result, err)
                                      : predict_into(&run, call->pool, out, &result, &scores, err);

    if (status == GP_OK && options->common.json && options->input.on_error == GP_ON_ERROR_SKIP) {
        json_document json; /* the skipped images are the last line */

        prediction_put_skipped(&run, show_json_object(&json, false));
        status = show_json_print(&json, err);
    }
    gp_buffer_deinit(&run.skipped_names);
    if (status != GP_OK || options->common.quiet)
        return status;
    const double rate = (double)result.count / result.seconds;

    fprintf(stderr, "%" PRIu64 " sample%s in %s, %.*f images/s", result.count, gp_plural(result.count),
            cli_duration(result.seconds, time, sizeof(time)), rate < 10, rate);
    if (!isnan(result.accuracy))
        fprintf(stderr, "; accuracy %.2f %% of %" PRIu64 " labelled", result.accuracy * 100, result.labelled);
    if (result.labelled > 0 && result.excluded > 0)
        fprintf(stderr, " (%" PRIu64 " without a label excluded)", result.excluded);
    if (!isnan(result.rmse))
        fprintf(stderr, "; RMSE %.4g of %" PRIu64 " with values", result.rmse, result.labelled);
    if (scores != NULL)
        fprintf(stderr, "; scores: %s", scores);
    fprintf(stderr, "\n");
    return GP_OK;
}

static const char *const predict_sources[] = { "data", NULL };

const cli_command cli_command_predict = {
    .name = "predict",
    .summary = "predict class and scores of every sample, in order, on all workers",
    .usage = "--model FILE.onnx --data SOURCE [--out FILE|FOLDER/] [--top-k K] [options]",
    .description =
        "Run a model on every sample of a data source, on all workers, and write one row for each sample: "
        "index, name, class and scores. Rows have the order of the data, and each sample appears exactly "
        "once, even if workers fail. For networks with scores per pixel the output is label images, or "
        "the class of each pixel in FILE.npy. The model is an ONNX file, for example from "
        "`gradpool train`.",
    .examples =
        "  gradpool predict --model model.onnx --data fashion-mnist --out predictions.csv\n"
        "  gradpool predict --model model.onnx --data photos/ --top-k 3 --json      one JSON object per "
        "line\n"
        "  gradpool predict --model unet.onnx --data streets/ --out classes.npy    the class of each pixel\n"
        "  gradpool predict --model deeplab.onnx --data camvid --out labels/ --overlays overlays/\n"
        "  gradpool predict --model deeplab.onnx --data drive/ --out labels/ --image-fit windows --overlap "
        "64\n"
        "  gradpool predict --model model.onnx --data photos/ --out p.csv --on-error skip    unreadable "
        "files have no row\n",
    .options = predict_params,
    .options_bytes = sizeof(predict_options),
    .leases = true,
    .pool = CLI_POOL_STARTED,
    .check = predict_check,
    .sources = predict_sources,
    .run = predict_run,
};
