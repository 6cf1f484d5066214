/* Per-thread state for reading images: file buffer, decoder and resampler, all reused.
 *
 * Each read takes a reader from a stack, or creates one. There are as many readers as there were
 * concurrent reads. */
#ifndef GP_IMAGE_READER_H
#define GP_IMAGE_READER_H

#include <limits.h>
#include <pthread.h>

#include "common/data/image/image.h"
#include "common/data/source/image_list.h"
#include "common/data/image/resample.h"

/* A reader. Only one thread uses it at a time. */
typedef struct gp_image_reader {
    gp_image_decoder *decoder;
    gp_resampler *resampler;
    uint8_t *file;     /* bytes loaded last */
    size_t file_bytes; /* allocated size */
    uint8_t *label;    /* a sample's label image, if pixels have labels */
    uint8_t *large;    /* label image before resizing */
    size_t large_bytes;
    uint8_t *planes; /* sample before conversion to another pixel format */
    size_t plane_bytes;
    bool unreachable;        /* the last load failed because of the network or the host, not the image */
    char name[2 * PATH_MAX]; /* image name, for messages */
    struct gp_image_reader *next;
} gp_image_reader;

/* Stack of idle readers. */
typedef struct gp_image_readers {
    pthread_mutex_t lock;
    gp_image_reader *first;
} gp_image_readers;

void gp_image_readers_init(gp_image_readers *readers);
void gp_image_readers_deinit(gp_image_readers *readers);

/* Take a reader from the stack, or create one with label_bytes for `label`. gp_image_reader_give()
 * returns it. */
gp_status gp_image_reader_take(gp_image_readers *readers, size_t label_bytes, gp_image_reader **out,
                               gp_error *err);
void gp_image_reader_give(gp_image_readers *readers, gp_image_reader *reader);

/* Load the first bytes_max bytes of an image file, or of an archive member, into reader->file, and
 * set reader->name. *bytes is set to the number of bytes loaded. */
gp_status gp_image_reader_load(gp_image_reader *reader, const gp_image_list *list, uint32_t index,
                               size_t bytes_max, size_t *bytes, gp_error *err);

/* Grow a buffer to at least `bytes` bytes. If it grows, the contents are lost. */
gp_status gp_image_reader_room(gp_image_reader *reader, uint8_t **data, size_t *taken, size_t bytes,
                               gp_error *err);

/* Format the path of an image; for an archive member, the archive path and the name. */
void gp_image_list_path(const gp_image_list *list, uint32_t index, char *path, size_t bytes);

#endif
