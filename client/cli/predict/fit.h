/* fit.h -- what of images predict and evaluate show the network (docs/predict.md, docs/segmentation.md). */
#ifndef GP_CLI_FIT_H
#define GP_CLI_FIT_H

#include <gradpool/gradpool.h>

#include "client/cli/cli.h"

typedef struct fit_options {
    int fit; /* gp_fit */
    int64_t overlap;
} fit_options;

extern const char *const fit_words[];

/* Of commands whose options have a fit_options `fit`. */
#define CLI_FIT_PARAMS(options_type)                                                                         \
    { .name = "fit",                                                                                         \
      GP_PARAM_FIELD(options_type, fit.fit),                                                                 \
      .words = fit_words,                                                                                    \
      .help = "what of images the network is shown; model: what it was trained on; resize: all, stretched; " \
              "crop: the largest middle of its proportions; windows (of networks that score pixels)" },      \
    {                                                                                                        \
        .name = "overlap", GP_PARAM_FIELD(options_type, fit.overlap), .max = 4096, .unit = "pixels",         \
        .help =                                                                                              \
            "that neighbouring windows share at least; default 0: a quarter of the window's smaller side"    \
    }

/* CLI_OK, or what a wrong combination ends the command with. */
int fit_check(cli_call *call, const fit_options *fit, const int64_t image_size[2]);
void fit_request(const cli_call *call, gp_predict_request *request, const fit_options *fit);

#endif
