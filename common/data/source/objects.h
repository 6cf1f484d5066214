/* Images in S3: size and tag of each object as listed, and access to the contents through cache and
 * prefetch queue. */
#ifndef GP_OBJECTS_H
#define GP_OBJECTS_H

#include "common/data/s3/prefetch.h"
#include "common/data/source/image_list.h"
#include "common/data/store/store_ops.h"
#include "common/data/cache/object_cache.h"
#include "common/data/s3/s3.h"

/* Objects in one bucket, with their recorded sizes and tags. */
typedef struct gp_objects gp_objects;

/* Prepare access to a bucket, without contacting the server. GP_EPERM: no credentials. */
gp_status gp_objects_open(gp_objects **out, const gp_s3_source *source, gp_error *err);
void gp_objects_close(gp_objects *objects); /* accepts NULL */

gp_s3 *gp_objects_s3(const gp_objects *objects);
gp_object_cache *gp_objects_cache(const gp_objects *objects);

/* Get an object's size and tag by reading one byte. */
gp_status gp_objects_stat(const gp_objects *objects, const char *key, gp_s3_range *range, gp_error *err);

/* Record size and tag for the next image in the list, or for the next place if images are in
 * archives. tag 0: both are unknown until the object is read. */
gp_status gp_objects_add(gp_objects *objects, uint64_t bytes, uint64_t tag, gp_error *err);

/* Declare that the recorded objects are places: archives that contain the images. */
void gp_objects_of_places(gp_objects *objects);

/* Compute the cache id for one block of an object. */
void gp_objects_id(const gp_objects *objects, gp_object_id *id, const char *key, uint64_t tag,
                   uint64_t block);

/* Read a range through the cache. The range must have the object's size and tag. whole_blocks:
 * always fetch and cache complete blocks, because neighbouring data will be requested too. */
gp_status gp_objects_read(gp_objects *objects, const gp_s3_range *range, bool whole_blocks, gp_buffer *out,
                          gp_error *err);

/* Start the prefetch queue for a list, which must not move afterwards. Call this before
 * gp_objects_want(). */
gp_status gp_objects_start(gp_objects *objects, const gp_image_list *list, gp_error *err);

void gp_objects_want(gp_objects *objects, const uint32_t *indices, uint32_t count);

/* Take the bytes of image `index`, prefetched or fetched now. At most bytes_max are needed, but
 * more may be returned. */
gp_status gp_objects_take(gp_objects *objects, uint32_t index, uint64_t bytes_max, gp_buffer *out,
                          gp_error *err);

/* ---- lists (s3_list.c) ---- */

/* Read the class file of a source in S3; otherwise like gp_pixels_classes(). */
struct gp_pixel_labels;
gp_status gp_s3_pixels_classes(struct gp_pixel_labels *labels, gp_image_list *list, const char *source,
                               gp_error *err);

/* Prepare a list with names of the form s3://BUCKET/KEY. All objects must be in one bucket. */
gp_status gp_s3_list_lines(gp_image_list *list, const char *source, gp_error *err);

/* ---- archives and arrays (s3_tar.c, s3_npy.c) ---- */

struct gp_tar_index;
/* Add the members of the object s3://BUCKET/KEY, which has the given size and tag, to the index.
 * GP_ELIMIT: the object is too large. */
gp_status gp_s3_tar_take(gp_objects *objects, struct gp_tar_index *index, const char *bucket, const char *key,
                         uint64_t bytes, uint64_t tag, gp_error *err);

/* Open the arrays in s3://BUCKET/PREFIX, or s3://BUCKET/X.npy with matching targets.
 *   bare     source without options
 *   objects  borrowed during the call
 *   exists   looks up a path in the listing; NULL: there is no listing, ask the server */
gp_status gp_s3_npy_open(gp_store **out, const char *bare, gp_objects *objects, gp_npy_exists exists,
                         void *context, gp_data_role role, gp_error *err);

/* Return the range of one block: GP_OBJECT_BLOCK_BYTES bytes, fewer at the end of the object. */
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
