/* Index a tar archive in S3 by reading only its headers. */
#ifndef GP_S3_TAR_H
#define GP_S3_TAR_H

#include "common/data/source/image_store.h"
#include "common/data/source/objects.h"

/* Add the members of the object s3://BUCKET/KEY, which has the given size and tag, to the index.
 * GP_ELIMIT: the object is too large. */
gp_status gp_s3_tar_take(gp_objects *objects, gp_tar_index *index, const char *bucket, const char *key,
                         uint64_t bytes, uint64_t tag, gp_error *err);

#endif
