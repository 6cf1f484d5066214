/* s3_npy.h -- arrays in S3: each is brought to the cache whole, once for the host, and mapped from there. */
#ifndef GP_S3_NPY_H
#define GP_S3_NPY_H

#include "common/data/format/npy.h"
#include "common/data/source/objects.h"
#include "common/data/store/store_ops.h"

/* gp_s3_npy_open -- arrays of s3://BUCKET/PREFIX, or s3://BUCKET/X.npy with what belongs to it.
 *   objects  borrowed for the call
 *   exists   whether the listing has a path; NULL: there is none, the server is asked */
gp_status gp_s3_npy_open(gp_store **out, const char *bare, gp_objects *objects, gp_npy_exists exists,
                         void *context, gp_data_role role, gp_error *err);

#endif
