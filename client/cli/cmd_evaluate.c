#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#include "client/cli/cli.h"
#include "common/base/json.h"

typedef struct evaluate_options {
    cli_common common;
    char model[512], data[512];
    int precision; /* gp_precision */
} evaluate_options;

static const gp_param evaluate_params[] = {
    { .name = "model",
      .type = GP_PARAM_TEXT,
      .offset = offsetof(evaluate_options, model),
      .count = 512,
      .help = "a trained model, FILE.onnx" },
    { .name = "data",
      .type = GP_PARAM_TEXT,
      .offset = offsetof(evaluate_options, data),
      .count = 512,
      .help = "a source with labels; its test split where it has one" },
    CLI_PRECISION_PARAM(evaluate_options),
    CLI_JSON_PARAM(evaluate_options),
    CLI_COMMON_PARAMS(evaluate_options),
    { 0 },
};

static void evaluate_json(const gp_evaluation *result)
{
    gp_buffer text;
    gp_json_writer writer;

    gp_buffer_init(&text, 4096);
    gp_json_writer_init(&writer, &text, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_number(&writer, "accuracy", result->accuracy);
    if (!isnan(result->rmse))
        gp_json_put_number(&writer, "rmse", result->rmse);
    gp_json_put_number(&writer, "loss", result->loss);
    gp_json_put_integer(&writer, "count", (int64_t)result->labelled);
    gp_json_put_number(&writer, "seconds", result->seconds);
    gp_json_end_object(&writer);
    printf("%s\n", gp_buffer_text(&text));
    gp_buffer_deinit(&text);
}

static void evaluate_progress(void *context, uint64_t done, uint64_t count)
{
    cli_progress_show(context, done, count);
}

static int evaluate_check(cli_call *call)
{
    const evaluate_options *options = call->options;

    if (options->model[0] == '\0' || options->data[0] == '\0')
        return cli_usage(call, "--%s is missing", options->model[0] == '\0' ? "model" : "data");
    return CLI_OK;
}

static int evaluate_run(cli_call *call)
{
    const evaluate_options *options = call->options;
    cli_progress progress;
    gp_predict_request request = { .model = options->model,
                                   .data = options->data,
                                   .precision = gp_precision_names[options->precision],
                                   .progress = evaluate_progress,
                                   .context = &progress,
                                   .stop = &cli_stop };
    gp_pool *pool;
    gp_evaluation result;
    gp_error err;

    gp_status status = cli_open(call, false, &pool, &err);

    if (status != GP_OK)
        return cli_fail(call, &err);
    cli_catch_interrupts();
    status = cli_lease_request(call, pool, &request.lease, &err);
    cli_progress_begin(call, &progress);
    if (status == GP_OK)
        status = gp_predict(&result, pool, &request, &err);
    cli_progress_end(&progress);
    gp_pool_close(pool);
    if (status != GP_OK)
        return cli_fail(call, &err);
    if (options->common.json)
        evaluate_json(&result);
    else if (isnan(result.loss))
        printf(
            "nothing to compare with: what the data has as targets is not what the model's loss takes; %.0f "
            "images/s\n",
            (double)result.count / result.seconds);
    else {
        if (!isnan(result.accuracy))
            printf("accuracy %.2f %%, ", result.accuracy * 100);
        if (!isnan(result.rmse))
            printf("RMSE %.4g, ", result.rmse);
        printf("loss %.4f, %" PRIu64 " samples, %.0f images/s\n", result.loss, result.labelled,
               (double)result.count / result.seconds);
    }
    return CLI_OK;
}

extern const cli_command cli_command_evaluate;
const cli_command cli_command_evaluate = {
    .name = "evaluate",
    .summary = "accuracy (or RMSE of values) and loss of a model on labelled data, over all workers",
    .usage = "--model FILE.onnx --data SOURCE [--precision f32|bf16] [--json]",
    .examples = "  gradpool evaluate --model model.onnx --data fashion-mnist --json\n",
    .options = evaluate_params,
    .options_bytes = sizeof(evaluate_options),
    .leases = true,
    .check = evaluate_check,
    .run = evaluate_run,
};
