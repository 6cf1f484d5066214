/* `gradpool data preview`: contact sheet of training samples after augmentation. */
#ifndef GP_CLI_DATA_PREVIEW_H
#define GP_CLI_DATA_PREVIEW_H

#include "client/cli/cli.h"

/* Request for a contact sheet. */
typedef struct preview_request {
    const char *source, *out;
    const char *augment; /* as in `train --augment` */
    int64_t image_size[2], rows, columns;
    uint64_t seed;
} preview_request;

/* Write a PNG with `rows` samples, spread evenly over the training data. Each row shows the sample
 * as stored, then as augmented in the first `columns` - 1 epochs with this seed. Pixel labels are
 * drawn below their image. Return the exit code. */
gp_status data_preview(cli_call *call, const preview_request *request, gp_error *err);

#endif
