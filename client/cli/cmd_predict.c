#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/job_self.h"
#include "client/cli/show.h"

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
      .help = "FILE.csv, or FILE.npy; default: rows on standard output" },
    CLI_PRECISION_PARAM(predict_options),
    CLI_COMMON_PARAMS(predict_options),
    { 0 },
};

enum { NPY_HEADER = 128 };

typedef struct gp_sink {
    FILE *out;
    bool array;    /* FILE.npy */
    char form[64]; /* of the array: "<f4", (..., 3, 8) behind the number of samples */
    uint64_t count;
    uint8_t *classes; /* of a sample's pixels; NULL: the array has the scores */
    size_t pixels;
    bool wide; /* a pixel's class takes 4 bytes */
    bool failed;
    gp_error refused; /* code GP_OK: it is not */
    cli_progress progress;
} gp_sink;

/* ---- FILE.npy (numpy.lib.format, version 1.0) ---- */

/* At the front, when all is written: only then the number of samples is known. */
static bool array_header(gp_sink *sink)
{
    char header[NPY_HEADER + 1], words[NPY_HEADER];
    int length = snprintf(words, sizeof(words),
                          "{'descr': '%.3s', 'fortran_order': False, 'shape': (%" PRIu64 "%s,), }",
                          sink->form, sink->count, sink->form + 3);

    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10); /* 118 bytes follow */
    snprintf(header + 10, sizeof(header) - 10, "%-117.117s\n", length < 118 ? words : "");
    return length < 118 && fseek(sink->out, 0, SEEK_SET) == 0 &&
           fwrite(header, 1, NPY_HEADER, sink->out) == NPY_HEADER;
}

/* The class of each pixel, or all scores. */
static bool array_begin(gp_sink *sink, const gp_prediction *p)
{
    const char *type = "<f4";
    uint64_t elements = 1;
    char shape[48] = "";
    size_t used = 0;
    uint32_t first = 0;

    for (uint32_t d = 0; d < p->rank; d++)
        elements *= p->dims[d];
    if (p->rank == 3 && p->classes != 0 && elements == p->score_count) {
        sink->pixels = (size_t)(p->dims[1] * p->dims[2]);
        sink->wide = p->classes > 256;
        sink->classes = malloc(sink->pixels * sizeof(int32_t));
        type = sink->wide ? "<i4" : "|u1";
        first = 1;
        if (sink->classes == NULL)
            return false;
    }
    if (elements != p->score_count) /* several outputs, one behind the other */
        used = (size_t)snprintf(shape, sizeof(shape), ", %" PRIu32, p->score_count);
    for (uint32_t d = first; d < p->rank && elements == p->score_count && used < sizeof(shape); d++)
        used += (size_t)snprintf(shape + used, sizeof(shape) - used, ", %" PRIu64, p->dims[d]);
    snprintf(sink->form, sizeof(sink->form), "%s%s", type, shape);
    return fseek(sink->out, NPY_HEADER, SEEK_SET) == 0;
}

static bool array_row(gp_sink *sink, const gp_prediction *p)
{
    if (p->index == 0 && !array_begin(sink, p))
        return false;
    sink->count = p->index + 1;
    if (sink->classes == NULL)
        return fwrite(p->scores, sizeof(float), p->score_count, sink->out) == p->score_count;
    for (size_t i = 0; i < sink->pixels; i++) {
        int32_t largest = 0;

        for (uint32_t k = 1; k < p->classes; k++)
            if (p->scores[k * sink->pixels + i] > p->scores[(size_t)largest * sink->pixels + i])
                largest = (int32_t)k;
        if (sink->wide)
            memcpy(sink->classes + i * sizeof(largest), &largest, sizeof(largest));
        else
            sink->classes[i] = (uint8_t)largest;
    }
    return fwrite(sink->classes, sink->wide ? sizeof(int32_t) : 1, sink->pixels, sink->out) == sink->pixels;
}

/* ---- rows ---- */

static bool table_row(gp_sink *sink, const gp_prediction *p)
{
    if (p->index == 0) {
        fprintf(sink->out, p->class_name != NULL ? "index,name,class" : "index,name");
        for (uint32_t k = 0; k < p->score_count; k++)
            fprintf(sink->out, ",%s_%" PRIu32, p->class_name != NULL ? "score" : "value", k);
        fputc('\n', sink->out);
    }
    fprintf(sink->out, "%" PRIu64 ",", p->index);
    show_csv_field(sink->out, p->name);
    if (p->class_name != NULL) {
        fputc(',', sink->out);
        show_csv_field(sink->out, p->class_name);
    }
    for (uint32_t k = 0; k < p->score_count; k++)
        fprintf(sink->out, ",%.7g", (double)p->scores[k]);
    return fputc('\n', sink->out) != EOF;
}

static bool predict_row(void *context, const gp_prediction *p)
{
    gp_sink *sink = context;

    if (!sink->array && p->rank != 1) {
        gp_fail(&sink->refused, GP_EINVAL,
                "the model gives %" PRIu32 " numbers for a sample, in %" PRIu32
                " dimensions; give --out FILE.npy, an array%s",
                p->score_count, p->rank, p->classes != 0 ? " of the class of each pixel" : "");
        return false;
    }
    sink->failed = !(sink->array ? array_row(sink, p) : table_row(sink, p));
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
    size_t length = strlen(path);
    gp_sink sink = { .out = stdout, .array = length > 4 && strcmp(path + length - 4, ".npy") == 0 };
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
    if (status == GP_OK && sink.array)
        sink.failed = !array_header(&sink);
    free(sink.classes);
    if (sink.refused.code != GP_OK) {
        *err = sink.refused;
        status = err->code;
    }
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
        if (!isnan(result.rmse))
            fprintf(stderr, "; RMSE %.4g of %" PRIu64 " with values", result.rmse, result.labelled);
        fprintf(stderr, "\n");
    }
    return CLI_OK;
}

extern const cli_command cli_command_predict;
const cli_command cli_command_predict = {
    .name = "predict",
    .summary = "class and scores of every sample, over all workers, in order",
    .usage = "--model FILE.onnx --data SOURCE [--out FILE.csv|FILE.npy] [--precision f32|bf16]",
    .examples =
        "  gradpool predict --model model.onnx --data fashion-mnist --out predictions.csv\n"
        "  gradpool predict --model unet.onnx --data streets/ --out classes.npy    the class of each pixel\n",
    .options = predict_params,
    .options_bytes = sizeof(predict_options),
    .leases = true,
    .check = predict_check,
    .run = predict_run,
};
