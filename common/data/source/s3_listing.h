/* s3_listing.h -- all objects below a prefix in S3, by name, in the order that a directory of the same names has. */
#ifndef GP_S3_LISTING_H
#define GP_S3_LISTING_H

#include "common/base/memory/buffer.h"
#include "common/data/source/objects.h"

typedef struct s3_entry {
    uint64_t name; /* in the text, below the prefix */
    uint64_t bytes, tag;
} s3_entry;

/* All objects below a prefix whose names have nothing hidden. */
typedef struct s3_listing {
    gp_s3_source source;
    gp_objects *objects;
    char bare[GP_S3_SOURCE_BYTES_MAX]; /* s3://BUCKET/PREFIX */
    size_t skip;                       /* bytes of the prefix and its slash */
    gp_buffer text;
    s3_entry *entries;
    uint32_t count;
    const gp_progress *progress; /* of s3_listing_read(); NULL: no reports */
} s3_listing;

gp_status s3_listing_open(s3_listing *listing, const gp_s3_source *source, gp_error *err);
void s3_listing_close(s3_listing *listing); /* also one that is all zeros */

/* s3_listing_read -- asks S3.  GP_ENOENT: there is nothing below the prefix. */
gp_status s3_listing_read(s3_listing *listing, gp_error *err);

/* NULL: there is none of that name. */
const s3_entry *s3_listing_find(const s3_listing *listing, const char *name);

/* Below the prefix, as in "CLASS/NAME.jpg". */
static inline const char *s3_listing_name(const s3_listing *listing, uint32_t index)
{
    return (const char *)listing->text.data + listing->entries[index].name;
}

#endif
