/* Run a prediction or an evaluation on the pool and collect skipped images. */
#include "client/cli/predict/prediction.h"

#include <string.h>

#include "client/cli/show.h"

const char *const fit_names[] = { "model", "input", "resize", "windows", "crop", NULL };

int prediction_check(cli_call *call, const prediction_options *input)
{
    bool resize = input->fit == GP_IMAGE_FIT_RESIZE;

    if ((resize || input->fit == GP_IMAGE_FIT_CROP) && input->image_size[0] != 0)
        return cli_usage(call, "--image-size has no effect with --image-fit %s; drop one of them",
                         fit_names[input->fit]);
    if ((resize || input->fit == GP_IMAGE_FIT_INPUT) && input->overlap != 0)
        return cli_usage(call, "--overlap has no effect with --image-fit %s; drop one of them",
                         fit_names[input->fit]);
    return CLI_OK;
}

void prediction_init(prediction *run, const cli_call *call, const prediction_options *input)
{
    *run = (prediction){ .call = call, .input = input };
    gp_buffer_init(&run->skipped_names, PREDICTION_NAMES_BYTES_MAX);
}

/* ---- events ---- */

static bool on_each(void *context, const gp_prediction *one)
{
    const prediction *run = context;

    return run->on_result(run->context, one);
}

static void on_progress(void *context, uint64_t done, uint64_t count)
{
    cli_progress_show(&((prediction *)context)->progress, "", done, count);
}

/* Count a skipped image. Names are dropped after PREDICTION_NAMES_BYTES_MAX bytes. */
static void on_skip(void *context, uint64_t index, const char *name)
{
    prediction *run = context;

    (void)index;
    run->skipped++;
    (void)gp_buffer_append(&run->skipped_names, name, strlen(name) + 1, NULL);
}

gp_status prediction_run(prediction *run, gp_pool *pool, gp_evaluation *result, gp_confusion **confusion,
                         gp_error *err)
{
    const prediction_options *input = run->input;
    cli_progress reading;
    const gp_progress reports = cli_progress_reports(&reading);
    gp_predict_request request = { .model = input->model,
                                   .data = input->data,
                                   .image_normalization = input->image_normalization,
                                   .ignore_labels = run->ignore_labels,
                                   .precision = gp_precision_names[input->precision],
                                   .image_size = { (uint32_t)input->image_size[0],
                                                   (uint32_t)input->image_size[1] },
                                   .fit = (gp_image_fit)input->fit,
                                   .overlap = (uint32_t)input->overlap,
                                   .on_error = gp_on_error_names[input->on_error],
                                   .pixel_classes = run->pixel_classes,
                                   .on_result = run->on_result != NULL ? on_each : NULL,
                                   .skip = on_skip,
                                   .progress = on_progress,
                                   .note = ((const cli_common *)run->call->options)->quiet ? NULL : cli_note,
                                   .context = run,
                                   .stop = &cli_stop,
                                   .data_progress = &reports };
    gp_status status = cli_lease_request(run->call, pool, &request.lease, err);

    if (status != GP_OK)
        return status;
    cli_progress_begin(run->call, &run->progress, "samples");
    cli_progress_begin(run->call, &reading, "samples");
    status = confusion != NULL ? gp_evaluate(result, confusion, pool, &request, err)
                               : gp_predict(result, pool, &request, err);
    cli_progress_end(&reading);
    cli_progress_end(&run->progress);
    return status;
}

void prediction_put_skipped(const prediction *run, gp_json_writer *writer)
{
    const char *name = gp_buffer_text(&run->skipped_names), *end = name + run->skipped_names.bytes;

    gp_json_put_integer(writer, "skipped", (int64_t)run->skipped);
    gp_json_begin_array(writer, "skipped_names");
    for (; name < end; name += strlen(name) + 1)
        gp_json_put_text(writer, NULL, name);
    gp_json_end_array(writer);
}
