/* predict_pixels.h -- the classes of pixels as pictures: a label image for each image, and the image with them laid over it. */
#ifndef GP_CLI_PREDICT_PIXELS_H
#define GP_CLI_PREDICT_PIXELS_H

#include <gradpool/gradpool.h>

#include "common/data/source/palette.h"
#include "common/data/store/store.h"

typedef struct pixels_request {
    const char *data;       /* SOURCE */
    const char *labels;     /* directory of the label images; "" = none */
    const char *overlays;   /* directory of the overlays; "" = none */
    const char *class_file; /* numbers and colours of the classes; "" = the source's, else the default ones */
    gp_on_error on_error;   /* what opening the source for overlays does with images that cannot be read */
    double opacity;         /* of colours in overlays, 0 to 1 */
} pixels_request;

typedef struct pixels_sink {
    pixels_request request;
    gp_palette *palette; /* NULL before the first image */
    gp_store *store;     /* images for overlays; NULL: none */
    gp_whole image;
    uint64_t *written; /* hash table of names, 0 is free */
    uint64_t written_count, written_capacity;
    gp_error error; /* the first; code GP_OK: none */
} pixels_sink;

/* Directories are made as they are needed.  Closed by pixels_close() after a success. */
gp_status pixels_open(pixels_sink *out, const pixels_request *request, gp_error *err);

/* One image's.  False: sink->error says why. */
bool pixels_add(pixels_sink *sink, const gp_prediction *p);

/* Returns status, or what went wrong in an image. */
gp_status pixels_close(pixels_sink *sink, gp_status status, gp_error *err);

#endif
