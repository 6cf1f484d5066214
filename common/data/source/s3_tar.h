/* s3_tar.h -- an archive in S3, of which the headers alone are read. */
#ifndef GP_S3_TAR_H
#define GP_S3_TAR_H

#include "common/data/source/image_store.h"
#include "common/data/source/objects.h"

/* gp_s3_tar_take -- put the members of the object s3://BUCKET/KEY, of so many bytes and that tag, into the index.
 * GP_ELIMIT: it is larger than archives can be. */
gp_status gp_s3_tar_take(gp_objects *objects, gp_tar_index *index, const char *bucket, const char *key,
                         uint64_t bytes, uint64_t tag, gp_error *err);

#endif
