/* `gradpool evaluate`: accuracy, loss and confusion matrix for a model on labelled data. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/predict/prediction.h"
#include "client/cli/show.h"
#include "common/base/text/json.h"
#include "common/base/system/metrics_put.h"
#include "common/base/text/text.h"

typedef struct evaluate_options {
    cli_common common;
    prediction_options input;
    char confusion[1024];
    bool per_class;
} evaluate_options;

static const gp_param evaluate_params[] = {
    { .name = "model",
      GP_PARAM_FIELD(evaluate_options, input.model),
      .basic = true,
      .placeholder = "FILE.onnx",
      .help = "trained model" },
    { .name = "data",
      GP_PARAM_FIELD(evaluate_options, input.data),
      .basic = true,
      .placeholder = "SOURCE",
      .help = "labelled data source, see docs/data.md; its test part if it has one" },
    { .name = "per-class",
      GP_PARAM_FIELD(evaluate_options, per_class),
      .basic = true,
      .help = "print recall, precision, F1 and IoU of each class, and the confusion matrix" },
    { .name = "confusion",
      GP_PARAM_FIELD(evaluate_options, confusion),
      .basic = true,
      .placeholder = "FILE,...",
      .help = "write the confusion matrix to FILE.png, .csv, .json or .txt; several with commas" },
    CLI_PREDICTION_PARAMS(evaluate_options),
    CLI_JSON_PARAM(evaluate_options),
    CLI_COMMON_PARAMS(evaluate_options),
    { 0 },
};

/* Result of an evaluation, and the run that produced it. */
typedef struct evaluated {
    gp_evaluation result;
    gp_confusion *confusion; /* NULL: none */
    gp_metrics metrics;      /* confusion matrix metrics */
    bool pixels;             /* each sample has several classes (one per pixel) */
    prediction run;
} evaluated;

/* ---- JSON output ---- */

static gp_status evaluate_json(const evaluated *e, bool per_class, gp_error *err)
{
    json_document json;
    gp_json_writer *writer = show_json_object(&json, false);

    gp_json_put_number(writer, "accuracy", e->result.accuracy);
    if (!isnan(e->result.rmse))
        gp_json_put_number(writer, "rmse", e->result.rmse);
    gp_json_put_number(writer, "loss", e->result.loss);
    gp_json_put_integer(writer, "count", (int64_t)e->result.labelled);
    gp_json_put_number(writer, "seconds", e->result.seconds);
    gp_json_put_integer(writer, "excluded", (int64_t)e->result.excluded);
    prediction_put_skipped(&e->run, writer);
    if (e->pixels)
        gp_json_put_integer(writer, "pixels", (int64_t)e->metrics.count);
    if (e->confusion != NULL)
        gp_confusion_put_means(writer, &e->metrics);
    if (e->confusion != NULL && per_class)
        gp_confusion_put_per_class(writer, e->confusion);
    return show_json_print(&json, err);
}

/* ---- text output ---- */

/* Limit on the printed names of absent classes. */
enum { ABSENT_LISTED = 8 };

/* Print how many samples have no label, and the model's classes that the data lack. */
static void evaluate_print_excluded(const evaluated *e)
{
    char text[80];

    if (e->result.excluded > 0)
        printf("excluded: %s\n",
               show_excluded(text, sizeof(text), e->result.excluded, e->pixels, isnan(e->result.accuracy)));
    if (e->confusion == NULL || e->metrics.present == e->confusion->class_count)
        return;
    printf("classes of the model that the data lacks:");
    for (uint32_t i = 0, listed = 0; i < e->confusion->class_count && listed <= ABSENT_LISTED; i++)
        if (gp_confusion_class(e->confusion, i).truth == 0 && listed++ < ABSENT_LISTED)
            printf("%s %s", listed == 1 ? "" : ",", e->confusion->class_names[i]);
    printf("%s (%" PRIu32 " of %" PRIu32 ")\n",
           e->confusion->class_count - e->metrics.present > ABSENT_LISTED ? ", ..." : "",
           e->confusion->class_count - e->metrics.present, e->confusion->class_count);
}

static gp_status evaluate_print(const evaluated *e, bool per_class, gp_error *err)
{
    static const gp_confusion_form forms[] = { GP_CONFUSION_CLASSES, GP_CONFUSION_TABLE };
    const double rate = (double)e->result.count / e->result.seconds;
    gp_status status = GP_OK;
    char *text;

    if (!isnan(e->result.accuracy))
        printf("accuracy %.2f %%%s, ", e->result.accuracy * 100, e->pixels ? " of the pixels" : "");
    if (e->pixels)
        printf("mean accuracy %.2f %%, mean IoU %.2f %%, weighted IoU %.2f %%, ",
               e->metrics.mean_accuracy * 100, e->metrics.mean_iou * 100, e->metrics.weighted_iou * 100);
    if (!isnan(e->result.rmse))
        printf("RMSE %.4g, ", e->result.rmse);
    if (!isnan(e->result.loss)) /* NaN: all classes of the data have weight 0 */
        printf("loss %.4f, ", e->result.loss);
    printf("%" PRIu64 " sample%s, %.*f images/s\n", e->result.labelled, gp_plural(e->result.labelled),
           rate < 10, rate);
    evaluate_print_excluded(e);
    for (int i = 0; i < 2 && per_class && status == GP_OK; i++) {
        status = gp_confusion_format(e->confusion, forms[i], &text, err);
        if (status != GP_OK)
            break;
        printf("\n%s", text);
        gp_buffer_free(text);
    }
    return status;
}

/* Write the confusion matrix to each listed file. Pictures show the accuracy as title. */
static gp_status confusion_save(const evaluated *e, const char *list, gp_error *err)
{
    char title[96];

    if (e->pixels)
        snprintf(title, sizeof(title), "accuracy %.2f %%, mean IoU %.2f %%", e->result.accuracy * 100,
                 e->metrics.mean_iou * 100);
    else
        snprintf(title, sizeof(title), "accuracy %.2f %%", e->result.accuracy * 100);
    while (list[0] != '\0') {
        const size_t length = strcspn(list, ",");
        char path[512];

        snprintf(path, sizeof(path), "%.*s", (int)length, list);
        gp_status status = gp_confusion_save(e->confusion, path, title, err);

        if (status != GP_OK)
            return status;
        list += length + (list[length] == ',');
    }
    return GP_OK;
}

/* ---- the command ---- */

/* Check the options, and the suffixes of --confusion before the evaluation starts. */
static int evaluate_check(cli_call *call)
{
    static const char *const suffixes[] = { ".png", ".csv", ".json", ".txt" };
    const evaluate_options *options = call->options;
    int code = CLI_OK;

    if (options->input.model[0] == '\0' || options->input.data[0] == '\0')
        return cli_usage(call, "--%s is missing", options->input.model[0] == '\0' ? "model" : "data");
    code = prediction_check(call, &options->input);
    for (const char *list = options->confusion; list[0] != '\0' && code == CLI_OK;) {
        const size_t length = strcspn(list, ",");
        bool known = false;

        for (size_t i = 0; i < 4; i++) {
            const size_t bytes = strlen(suffixes[i]);

            known |=
                length > bytes && length < 512 && strncmp(list + length - bytes, suffixes[i], bytes) == 0;
        }
        if (!known)
            code =
                cli_usage(call, "--confusion is '%.*s'; it must be FILE.png, FILE.csv, FILE.json or FILE.txt",
                          (int)(length < 200 ? length : 200), list);
        list += length + (list[length] == ',');
    }
    return code;
}

/* Run the evaluation. GP_EINVAL: the data have no usable labels, or no confusion matrix can be
 * computed. */
static gp_status evaluate_call(const cli_call *call, gp_pool *pool, evaluated *e, gp_error *err)
{
    const evaluate_options *options = call->options;
    gp_status status = prediction_run(&e->run, pool, &e->result, &e->confusion, err);

    if (status != GP_OK)
        return status;
    if (e->result.labelled == 0)
        return gp_fail(
            err, GP_EINVAL,
            "no sample was evaluated: %.120s has no labels, or labels that the loss of %.120s cannot use; "
            "give labelled data (class folders, label images, FILE.csv or y.npy), or use gradpool predict",
            options->input.data, options->input.model);
    if (e->confusion != NULL)
        e->metrics = gp_confusion_metrics(e->confusion);
    else if (options->confusion[0] != '\0' || options->per_class)
        return gp_fail(err, GP_EINVAL,
                       "no confusion matrix: the model is a regression or has more than %d classes, or no "
                       "sample of %s has a class of the model",
                       GP_CONFUSION_CLASSES_MAX, options->input.data);
    e->pixels = e->confusion != NULL && e->metrics.count != e->result.labelled;
    return GP_OK;
}

static gp_status evaluate_run(cli_call *call, gp_error *err)
{
    const evaluate_options *options = call->options;
    evaluated e = { 0 };

    cli_catch_interrupts();
    prediction_init(&e.run, call, &options->input);
    gp_status status = evaluate_call(call, call->pool, &e, err);

    if (status == GP_OK)
        status = confusion_save(&e, options->confusion, err);
    if (status == GP_OK)
        status = options->common.json ? evaluate_json(&e, options->per_class, err)
                                      : evaluate_print(&e, options->per_class, err);
    gp_confusion_free(e.confusion);
    gp_buffer_deinit(&e.run.skipped_names);
    return status;
}

static const char *const evaluate_sources[] = { "data", NULL };

const cli_command cli_command_evaluate = {
    .name = "evaluate",
    .summary = "compute accuracy (regression: RMSE), loss and confusion matrix on labelled data",
    .usage = "--model FILE.onnx --data SOURCE [--per-class] [--confusion FILE,...] [options]",
    .description =
        "Run a model, for example one from `gradpool train`, on a labelled data source, on all workers, "
        "and compare the predictions with the labels. The output is accuracy and loss; for a network that "
        "predicts values, the root of the mean squared error replaces the accuracy.",
    .examples =
        "  gradpool evaluate --model model.onnx --data fashion-mnist --json\n"
        "  gradpool evaluate --model model.onnx --data photos/ --per-class --confusion confusion.png\n"
        "  gradpool evaluate --model model.onnx --data photos/ --on-error skip  skip unreadable files\n"
        "  gradpool evaluate --model elsewhere.onnx --data photos/ --image-fit crop    crop the centre "
        "instead of stretching\n"
        "  gradpool evaluate --model deeplab.onnx --data camvid --per-class --confusion "
        "confusion.png,confusion.csv\n",
    .options = evaluate_params,
    .options_bytes = sizeof(evaluate_options),
    .leases = true,
    .pool = CLI_POOL_STARTED,
    .check = evaluate_check,
    .sources = evaluate_sources,
    .run = evaluate_run,
};
