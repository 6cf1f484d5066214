/* prediction.h -- what `predict` and `evaluate` share: options of the input, progress, and the images that were skipped
 * because they could not be read (--on-error skip). */
#ifndef GP_CLI_PREDICTION_H
#define GP_CLI_PREDICTION_H

#include "client/cli/cli.h"
#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"
#include "common/model/train_options.h"

typedef struct prediction_options {
    char model[512], data[512], image_normalization[160];
    int64_t image_size[2]; /* height, width */
    int64_t overlap;       /* of windows, in pixels */
    int fit;               /* gp_image_fit */
    int precision;         /* gp_precision */
    int on_error;          /* index of gp_on_error_words */
} prediction_options;

extern const char *const fit_words[]; /* in the order of gp_image_fit */

/* Options of commands whose struct has a prediction_options `input`, without --model and --data. */
#define CLI_PREDICTION_PARAMS(options_type)                                                                  \
    { .name = "image-size",                                                                                  \
      GP_PARAM_FIELD(options_type, input.image_size),                                                        \
      .min = 0,                                                                                              \
      .max = 8192,                                                                                           \
      .unit = "pixels",                                                                                      \
      .help = "height, width that images are brought to before their middle is taken or (networks that "     \
              "score pixels) windows are cut; 0,0: as the model was trained" },                              \
        { .name = "image-fit",                                                                               \
          GP_PARAM_FIELD(options_type, input.fit),                                                           \
          .words = fit_words,                                                                                \
          .help = "what of images the network is shown; model: what it was trained on; resize: all, "        \
                  "stretched; crop: the largest middle of its proportions; windows (of networks that score " \
                  "pixels)" },                                                                               \
        { .name = "overlap",                                                                                 \
          GP_PARAM_FIELD(options_type, input.overlap),                                                       \
          .max = 4096,                                                                                       \
          .unit = "pixels",                                                                                  \
          .help = "that neighbouring windows share at least; default 0: a quarter of the window's smaller "  \
                  "side" },                                                                                  \
        CLI_NORMALIZATION_PARAM(options_type, input.image_normalization),                                    \
        { .name = "precision",                                                                               \
          GP_PARAM_FIELD(options_type, input.precision),                                                     \
          .words = gp_precision_names,                                                                       \
          .help = "f32; bf16: activations and products in bfloat16, faster on large networks; tf32, fp16: "  \
                  "of GPUs" },                                                                               \
    {                                                                                                        \
        .name = "on-error", GP_PARAM_FIELD(options_type, input.on_error), .words = gp_on_error_words,        \
        .help = GP_ON_ERROR_HELP                                                                             \
    }

enum { PREDICTION_NAMES_BYTES_MAX = 16 << 20 };

/* One run of a prediction or an evaluation. */
typedef struct prediction {
    const cli_call *call;
    const prediction_options *input;
    bool (*on_result)(void *context, const gp_prediction *prediction); /* as in gp_predict_request */
    void *context;                                                     /* of each() */
    bool pixel_classes, ignore_labels;                                 /* as in gp_predict_request */
    uint64_t skipped;                                                  /* images that could not be read */
    gp_buffer skipped_names;                                           /* each with its NUL */
    cli_progress progress;
} prediction;

/* Check combinations of options. CLI_OK: valid; else the exit code, after the error was shown. */
int prediction_check(cli_call *call, const prediction_options *input);

void prediction_init(prediction *run, const cli_call *call, const prediction_options *input);
void prediction_deinit(prediction *run);

/* Predict with the workers that the call asks for.
 *   confusion  NULL: call each() for every sample; else evaluate and return the confusion matrix there */
gp_status prediction_run(prediction *run, gp_pool *pool, gp_evaluation *result, gp_confusion **confusion,
                         gp_error *err);

/* Write the members "skipped" (count) and "skipped_names". */
void prediction_put_skipped(const prediction *run, gp_json_writer *writer);

#endif
