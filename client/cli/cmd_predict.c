#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/job_self.h"

typedef struct predict_options {
    cli_common common;
    char model[512], data[512], out[512];
    int precision; /* gp_precision */
} predict_options;

static const gp_param predict_params[] = {
    { .name = "model",
      .type = GP_PARAM_TEXT,
      .offset = offsetof(predict_options, model),
      .count = 512,
      .help = "a trained model, FILE.onnx" },
    { .name = "data",
      .type = GP_PARAM_TEXT,
      .offset = offsetof(predict_options, data),
      .count = 512,
      .help = "a source; its test split where it has one" },
    { .name = "out",
      .type = GP_PARAM_TEXT,
      .offset = offsetof(predict_options, out),
      .count = 512,
      .help = "FILE.csv; default: standard output" },
    CLI_PRECISION_PARAM(predict_options),
    CLI_COMMON_PARAMS(predict_options),
    { 0 },
};

typedef struct gp_sink {
    FILE *out;
    bool failed;
    cli_progress progress;
} gp_sink;

static bool predict_row(void *context, const gp_prediction *p)
{
    gp_sink *sink = context;

    if (p->index == 0) {
        fprintf(sink->out, "index,class");
        for (uint32_t k = 0; k < p->classes; k++)
            fprintf(sink->out, ",score_%" PRIu32, k);
        fputc('\n', sink->out);
    }
    fprintf(sink->out, "%" PRIu64 ",%s", p->index, p->class_name);
    for (uint32_t k = 0; k < p->classes; k++)
        fprintf(sink->out, ",%.7g", (double)p->scores[k]);
    sink->failed = fputc('\n', sink->out) == EOF;
    return !sink->failed;
}

static void predict_progress(void *context, uint64_t done, uint64_t count)
{
    gp_sink *sink = context;

    cli_progress_show(&sink->progress, done, count);
}

/* Into FILE.tmp, renamed when complete: nothing half-written stays. */
static gp_status predict_into(const cli_call *call, gp_pool *pool, const char *path, gp_evaluation *result,
                              gp_error *err)
{
    const predict_options *options = call->options;
    char temporary[632];
    gp_sink sink = { .out = stdout };
    gp_predict_request request = { .model = options->model,
                                   .data = options->data,
                                   .precision = gp_precision_names[options->precision],
                                   .each = predict_row,
                                   .progress = predict_progress,
                                   .context = &sink,
                                   .stop = &cli_stop };
    gp_status status = cli_lease_request(call, pool, &request.lease, err);

    if (status != GP_OK)
        return status;
    snprintf(temporary, sizeof(temporary), "%s.tmp-%d", path, (int)getpid());
    if (path[0] != '\0')
        sink.out = fopen(temporary, "we");
    if (sink.out == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot write --out %s", path);
    cli_progress_begin(call, &sink.progress);
    status = gp_predict(result, pool, &request, err);
    cli_progress_end(&sink.progress);
    if (sink.failed)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path[0] != '\0' ? path : "standard output");
    if (path[0] == '\0')
        return status;
    if (fclose(sink.out) != 0 && status == GP_OK)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    if (status == GP_OK && rename(temporary, path) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", temporary, path);
    if (status != GP_OK)
        unlink(temporary);
    return status;
}

static int predict_check(cli_call *call)
{
    const predict_options *options = call->options;

    if (options->model[0] == '\0' || options->data[0] == '\0')
        return cli_usage(call, "--%s is missing", options->model[0] == '\0' ? "model" : "data");
    return CLI_OK;
}

static int predict_run(cli_call *call)
{
    const predict_options *options = call->options;
    gp_pool *pool;
    gp_evaluation result;
    gp_error err;
    char time[40], out[600];

    gp_status status = cli_open(call, false, &pool, &err);

    if (status != GP_OK)
        return cli_fail(call, &err);
    cli_catch_interrupts();
    snprintf(out, sizeof(out), "%s", options->out);
    if (out[0] == '\0' && job_self_folder() != NULL) /* a job's standard output is its log */
        job_self_result("predictions.csv", out, sizeof(out));
    status = predict_into(call, pool, out, &result, &err);
    gp_pool_close(pool);
    if (status != GP_OK)
        return cli_fail(call, &err);
    if (!options->common.quiet) {
        fprintf(stderr, "%" PRIu64 " samples in %s, %.0f images/s", result.count,
                cli_duration(result.seconds, time, sizeof(time)), (double)result.count / result.seconds);
        if (!isnan(result.accuracy))
            fprintf(stderr, "; accuracy %.2f %% of %" PRIu64 " labelled", result.accuracy * 100,
                    result.labelled);
        fprintf(stderr, "\n");
    }
    return CLI_OK;
}

extern const cli_command cli_command_predict;
const cli_command cli_command_predict = {
    .name = "predict",
    .summary = "class and scores of every sample, over all workers, in order",
    .usage = "--model FILE.onnx --data SOURCE [--out FILE.csv] [--precision f32|bf16]",
    .examples = "  gradpool predict --model model.onnx --data fashion-mnist --out predictions.csv\n",
    .options = predict_params,
    .options_bytes = sizeof(predict_options),
    .leases = true,
    .check = predict_check,
    .run = predict_run,
};
