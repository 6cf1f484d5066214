/* Shared by `gradpool predict` and `gradpool evaluate`: input options, progress, and images skipped
 * as unreadable (--on-error skip). */
#ifndef GP_CLI_PREDICTION_H
#define GP_CLI_PREDICTION_H

#include "client/cli/cli.h"
#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"
#include "common/model/train_options.h"

/* Input options for both commands. */
typedef struct prediction_options {
    char model[512], data[512], image_normalization[160];
    int64_t image_size[2]; /* height, width */
    int64_t overlap;       /* window overlap, in pixels */
    int fit;               /* gp_image_fit */
    int precision;         /* gp_precision */
    int on_error;          /* index into gp_on_error_names */
} prediction_options;

extern const char *const fit_names[]; /* --image-fit words, in gp_image_fit order */

/* Input options except --model and --data, for commands with a prediction_options member
 * `input`. */
#define CLI_PREDICTION_PARAMS(options_type)                                                                  \
    { .name = "image-size",                                                                                  \
      GP_PARAM_FIELD(options_type, input.image_size),                                                        \
      .min = 0,                                                                                              \
      .max = 8192,                                                                                           \
      .unit = "pixels",                                                                                      \
      .help = "resize images to height, width before the centre is cropped or windows are cut; 0,0: as in "  \
              "training" },                                                                                  \
        { .name = "image-fit",                                                                               \
          GP_PARAM_FIELD(options_type, input.fit),                                                           \
          .words = fit_names,                                                                                \
          .help = "how to fit images to the network; model: as in training; resize: stretch; crop: centre "  \
                  "crop; windows: sliding windows (scores per pixel)" },                                     \
        { .name = "overlap",                                                                                 \
          GP_PARAM_FIELD(options_type, input.overlap),                                                       \
          .max = 4096,                                                                                       \
          .unit = "pixels",                                                                                  \
          .help = "minimum overlap of neighbouring windows; 0: a quarter of the smaller window side" },      \
        CLI_NORMALIZATION_PARAM(options_type, input.image_normalization),                                    \
        { .name = "precision",                                                                               \
          GP_PARAM_FIELD(options_type, input.precision),                                                     \
          .words = gp_precision_names,                                                                       \
          .help = "f32; bf16: activations and products in bfloat16, faster on large networks; tf32, fp16: "  \
                  "on GPUs only" },                                                                          \
    {                                                                                                        \
        .name = "on-error", GP_PARAM_FIELD(options_type, input.on_error), .words = gp_on_error_names,        \
        .help = GP_ON_ERROR_HELP                                                                             \
    }

/* Limit on the stored names of skipped images. */
enum { PREDICTION_NAMES_BYTES_MAX = 16 << 20 };

/* A prediction or evaluation run. */
typedef struct prediction {
    const cli_call *call;
    const prediction_options *input;
    /* as in gp_predict_request */
    bool (*on_result)(void *context, const gp_prediction *prediction);
    void *context;                     /* passed to on_result() */
    bool pixel_classes, ignore_labels; /* as in gp_predict_request */
    uint64_t skipped;                  /* unreadable images */
    gp_buffer skipped_names;           /* names, each terminated by NUL */
    cli_progress progress;
} prediction;

/* Check option combinations. Return CLI_OK, or the exit code after printing an error. */
int prediction_check(cli_call *call, const prediction_options *input);

/* Initialize a run; the caller then sets on_result and the flags. */
void prediction_init(prediction *run, const cli_call *call, const prediction_options *input);

/* Lease the requested workers and run the model on all samples.
 *   result     set to the totals
 *   confusion  NULL: call on_result() for each sample; else evaluate and return the matrix there */
gp_status prediction_run(prediction *run, gp_pool *pool, gp_evaluation *result, gp_confusion **confusion,
                         gp_error *err);

/* Write the members "skipped" (count) and "skipped_names". */
void prediction_put_skipped(const prediction *run, gp_json_writer *writer);

#endif
