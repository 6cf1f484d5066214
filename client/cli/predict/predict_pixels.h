/* Image output for predicted pixel classes: one label image per input image, and overlays on the
 * input images. */
#ifndef GP_CLI_PREDICT_PIXELS_H
#define GP_CLI_PREDICT_PIXELS_H

#include <gradpool/gradpool.h>

#include "common/data/source/palette.h"
#include "common/data/store/store.h"

/* Output settings. */
typedef struct pixels_request {
    const char *data;     /* --data */
    const char *labels;   /* folder for label images; "": none */
    const char *overlays; /* folder for overlays; "": none */
    /* class numbers and colors; "": from the source, or else the default palette */
    const char *class_file;
    gp_on_error on_error; /* handling of unreadable images when the source is opened for overlays */
    double opacity;       /* color opacity in overlays, 0 to 1 */
} pixels_request;

/* Output state. */
typedef struct pixels_sink {
    pixels_request request;
    gp_palette *palette; /* NULL until the first image */
    gp_store *store;     /* image source for overlays; NULL: no overlays */
    gp_whole image;      /* buffer for one source image */
    void *written;       /* hashes of the output names; a tree of tsearch() */
    gp_error error;      /* first error; code GP_OK: none */
} pixels_sink;

/* Initialize the output; folders are created when needed. After success, call pixels_close(). */
gp_status pixels_open(pixels_sink *out, const pixels_request *request, gp_error *err);

/* Write one prediction's images; `sink` is a pixels_sink. false: failed;
 * the reason is in sink->error. */
bool pixels_add(void *sink, const gp_prediction *p);

/* Release all memory. Return `status`, or the first error of an image. */
gp_status pixels_close(pixels_sink *sink, gp_status status, gp_error *err);

#endif
