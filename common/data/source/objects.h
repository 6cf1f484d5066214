/* objects.h -- the images of a list that lie in S3: how large each is, which it was when it was listed, and its bytes, through
 * the cache and fetched ahead. */
#ifndef GP_OBJECTS_H
#define GP_OBJECTS_H

#include "common/data/s3/ahead.h"
#include "common/data/source/image_list.h"
#include "common/data/cache/object_cache.h"
#include "common/data/s3/s3.h"

typedef struct gp_objects gp_objects;

/* gp_objects_open -- GP_EPERM: no credentials.  Nothing is asked of the server yet. */
gp_status gp_objects_open(gp_objects **out, const gp_s3_source *source, gp_error *err);
void gp_objects_close(gp_objects *objects); /* accepts NULL */

gp_s3 *gp_objects_s3(const gp_objects *objects);
gp_object_cache *gp_objects_cache(const gp_objects *objects);

/* gp_objects_add -- the next image of the list (of an archive: its next place): its size and tag, tag 0 if neither is known
 * before it is read. */
gp_status gp_objects_add(gp_objects *objects, uint64_t bytes, uint64_t tag, gp_error *err);

/* gp_objects_of_places -- what was added are places: archives that the images are parts of. */
void gp_objects_of_places(gp_objects *objects);

/* The name in the cache of a block of an object. */
void gp_objects_id(const gp_objects *objects, gp_object_id *id, const char *key, uint64_t tag,
                   uint64_t block);

/* gp_objects_read -- a range of an object whose size and tag are in it, through the cache.
 *   whole_blocks  what is fetched is fetched in whole blocks, to be kept: the neighbours will be wanted too */
gp_status gp_objects_read(gp_objects *objects, const gp_s3_range *range, bool whole_blocks, gp_buffer *out,
                          gp_error *err);

/* gp_objects_start -- images of the list can be wanted from now on.  The list stays where it is. */
gp_status gp_objects_start(gp_objects *objects, const gp_image_list *list, gp_error *err);

void gp_objects_want(gp_objects *objects, const uint32_t *indices, uint32_t count);

/* gp_objects_take -- the bytes of image `index`; at most bytes_max of them are needed, but there may be more. */
gp_status gp_objects_take(gp_objects *objects, uint32_t index, uint64_t bytes_max, gp_buffer *out,
                          gp_error *err);

/* ---- lists (s3_list.c) ---- */

/* gp_s3_pixels_classes -- gp_pixels_classes() of a source in S3. */
struct gp_pixel_labels;
gp_status gp_s3_pixels_classes(struct gp_pixel_labels *labels, gp_image_list *list, const char *source,
                               gp_error *err);

/* gp_s3_list_lines -- a list of whose names some are s3://BUCKET/KEY: objects of that one bucket. */
gp_status gp_s3_list_lines(gp_image_list *list, const char *source, gp_error *err);

/* A block of an object: of GP_OBJECT_BLOCK_BYTES, the last of what is left. */
static inline gp_s3_range gp_object_block(const gp_s3_range *whole, uint32_t number)
{
    gp_s3_range block = *whole;
    uint64_t left;

    block.offset = (uint64_t)number * GP_OBJECT_BLOCK_BYTES;
    left = block.object_bytes - block.offset;
    block.bytes = left < GP_OBJECT_BLOCK_BYTES ? left : GP_OBJECT_BLOCK_BYTES;
    return block;
}

#endif
