/* All objects below a prefix in S3, in the order of a directory with the same names. */
#ifndef GP_S3_LISTING_H
#define GP_S3_LISTING_H

#include "common/base/memory/buffer.h"
#include "common/data/source/objects.h"

/* An object in the listing. */
typedef struct s3_entry {
    uint64_t name; /* offset in `text` of the name below the prefix */
    uint64_t bytes, tag;
} s3_entry;

/* All objects below a prefix, except those with hidden components in their names. */
typedef struct s3_listing {
    gp_s3_source source;
    gp_objects *objects;
    char bare[GP_S3_SOURCE_BYTES_MAX]; /* s3://BUCKET/PREFIX */
    size_t skip;                       /* length of the prefix with slash */
    gp_buffer text;
    s3_entry *entries;
    uint32_t count;
    const gp_progress *progress; /* receives progress from s3_listing_read(); NULL: no reports */
} s3_listing;

/* Initialize an empty listing and prepare access to the bucket. Release with s3_listing_close(),
 * even after a failure. */
gp_status s3_listing_open(s3_listing *listing, const gp_s3_source *source, gp_error *err);
void s3_listing_close(s3_listing *listing); /* accepts an all-zero struct */

/* Request the listing from S3. GP_ENOENT: there are no objects below the prefix. */
gp_status s3_listing_read(s3_listing *listing, gp_error *err);

/* Find an entry by name; NULL: not found. */
const s3_entry *s3_listing_find(const s3_listing *listing, const char *name);

/* Return a name below the prefix, such as "CLASS/NAME.jpg". */
static inline const char *s3_listing_name(const s3_listing *listing, uint32_t index)
{
    return (const char *)listing->text.data + listing->entries[index].name;
}

#endif
