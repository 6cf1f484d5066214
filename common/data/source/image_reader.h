/* image_reader.h -- what a thread needs to read images of a list: the file's bytes, a decoder, a resampler; kept from image
 * to image.
 *
 * A read takes a reader from a stack, or makes one: there are as many as there were threads at once. */
#ifndef GP_IMAGE_READER_H
#define GP_IMAGE_READER_H

#include <limits.h>
#include <pthread.h>

#include "common/data/image/image.h"
#include "common/data/source/image_list.h"
#include "common/data/image/resample.h"

typedef struct gp_image_reader {
    gp_image_decoder *decoder;
    gp_resampler *resampler;
    uint8_t *file;     /* what was loaded last */
    size_t file_bytes; /* taken */
    uint8_t *label;    /* a sample's label image, if pixels have labels */
    uint8_t *large;    /* the same at the size of the file */
    size_t large_bytes;
    uint8_t *planes; /* a sample, before it gets its form */
    size_t plane_bytes;
    bool unreachable;        /* the last load: the network's fault, not the image's */
    char name[2 * PATH_MAX]; /* of the image, for errors */
    struct gp_image_reader *next;
} gp_image_reader;

/* A stack of them. */
typedef struct gp_image_readers {
    pthread_mutex_t lock;
    gp_image_reader *first;
} gp_image_readers;

void gp_image_readers_init(gp_image_readers *readers);
void gp_image_readers_deinit(gp_image_readers *readers);

/* gp_image_reader_take -- one of the stack, or a new one with label_bytes for ->label.  gp_image_reader_give: back. */
gp_status gp_image_reader_take(gp_image_readers *readers, size_t label_bytes, gp_image_reader **out,
                               gp_error *err);
void gp_image_reader_give(gp_image_readers *readers, gp_image_reader *reader);

/* gp_image_reader_load -- the image's file, or its part of an archive, into ->file: its first bytes_max bytes.
 *   bytes  how many there are
 * ->name is left with what it is called. */
gp_status gp_image_reader_load(gp_image_reader *reader, const gp_image_list *list, uint32_t index,
                               size_t bytes_max, size_t *bytes, gp_error *err);

/* gp_image_reader_room -- memory that only grows: *data of at least `bytes` bytes. */
gp_status gp_image_reader_room(gp_image_reader *reader, uint8_t **data, size_t *taken, size_t bytes,
                               gp_error *err);

/* The path of an image; of an archive's member, its name below the archive. */
void gp_image_list_path(const gp_image_list *list, uint32_t index, char *path, size_t bytes);

#endif
