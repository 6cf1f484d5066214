/* Output of predicted pixel classes as images: one label image per input image, and overlays on the
 * input images. */
#ifndef GP_CLI_PREDICT_PIXELS_H
#define GP_CLI_PREDICT_PIXELS_H

#include <gradpool/gradpool.h>

#include "common/data/source/palette.h"
#include "common/data/store/store.h"

/* Settings of the output. */
typedef struct pixels_request {
    const char *data;     /* --data */
    const char *labels;   /* folder for label images; "": none */
    const char *overlays; /* folder for overlays; "": none */
    /* class numbers and colors; "": those of the source, or else the default palette */
    const char *class_file;
    gp_on_error on_error; /* handling of unreadable images when the source is opened for overlays */
    double opacity;       /* opacity of the colors in overlays, 0 to 1 */
} pixels_request;

/* State of the output. */
typedef struct pixels_sink {
    pixels_request request;
    gp_palette *palette; /* NULL until the first image */
    gp_store *store;     /* source of images for overlays; NULL: no overlays */
    gp_whole image;      /* buffer for one image of the source */
    uint64_t *written;   /* hash table of output names; 0: free entry */
    uint64_t written_count, written_capacity;
    gp_error error; /* first error; code GP_OK: none */
} pixels_sink;

/* Initialize the output; folders are created when needed. After success, call pixels_close(). */
gp_status pixels_open(pixels_sink *out, const pixels_request *request, gp_error *err);

/* Write the images of one prediction. false: failed; the reason is in sink->error. */
bool pixels_add(pixels_sink *sink, const gp_prediction *p);

/* Release all memory. Return `status`, or the first error of an image. */
gp_status pixels_close(pixels_sink *sink, gp_status status, gp_error *err);

#endif
