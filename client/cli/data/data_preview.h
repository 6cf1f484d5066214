/* data_preview.h -- `gradpool data preview`: a contact sheet of what a network will see. */
#ifndef GP_CLI_DATA_PREVIEW_H
#define GP_CLI_DATA_PREVIEW_H

#include "client/cli/cli.h"

typedef struct preview_request {
    const char *source, *out;
    const char *augment; /* as of `train --augment` */
    int64_t image_size[2], rows, columns;
    uint64_t seed;
} preview_request;

/* A PNG of rows samples, evenly spread over the training data: each as it is stored, then in the first columns - 1 epochs of
 * that seed.  Pixel labels stand below their image, in colours.  Returns the exit code. */
int data_preview(cli_call *call, const preview_request *request);

#endif
