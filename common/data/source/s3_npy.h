/* Arrays in S3: each is fetched completely into the disk cache, once per host, and mapped from
 * there. */
#ifndef GP_S3_NPY_H
#define GP_S3_NPY_H

#include "common/data/format/npy.h"
#include "common/data/source/objects.h"
#include "common/data/store/store_ops.h"

/* Open the arrays in s3://BUCKET/PREFIX, or s3://BUCKET/X.npy with matching targets.
 *   bare     source without options
 *   objects  borrowed during the call
 *   exists   looks up a path in the listing; NULL: there is no listing, ask the server */
gp_status gp_s3_npy_open(gp_store **out, const char *bare, gp_objects *objects, gp_npy_exists exists,
                         void *context, gp_data_role role, gp_error *err);

#endif
