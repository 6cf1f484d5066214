/* Read objects in one S3 bucket: list them, and read ranges of them, from any number of threads.
 *
 * libcurl signs the requests (AWS Signature Version 4). Each thread uses its own connection during
 * a call; idle connections are kept for later calls.
 *
 *   response                      reaction
 *   2xx                           done, if size and ETag match the listing
 *   5xx, 408, 429, cut, stalled,  retry after 0.2 s, doubled each time, less up to half at
 *   connection refused            random; up to 5 attempts
 *   403, credentials changed      retry at once with the new credentials (refreshed secrets, or a
 *                                 rewritten file)
 *   any other                     fail, with the S3 error and a remedy in the message */
#ifndef GP_S3_H
#define GP_S3_H

#include "common/base/memory/buffer.h"
#include "common/data/s3/s3_source.h"
#include "common/data/s3/s3_xml.h"

enum { GP_S3_CONNECTIONS_MAX = 64 };

typedef struct gp_s3 gp_s3;

/* Retry limits and timeouts; 0 selects the default. */
typedef struct gp_s3_retry_policy {
    uint32_t tries;     /* attempts; default 5 */
    uint32_t wait_ms;   /* delay before the first retry; default 200 */
    uint32_t connect_s; /* connect timeout; default 10 */
    uint32_t stall_s;   /* timeout for less than 1,024 bytes per second; default 20 */
} gp_s3_retry_policy;

/* Prepare access to a bucket, without contacting the server. Missing settings are filled in by
 * gp_s3_source_complete(). retry may be NULL. GP_ENOENT: libcurl is not installed. GP_EPERM: no
 * credentials. */
gp_status gp_s3_open(gp_s3 **out, const gp_s3_source *source, const gp_s3_retry_policy *retry, gp_error *err);
void gp_s3_close(gp_s3 *s3); /* accepts NULL; no thread may be in a call */

/* Return the source with all settings filled in. */
const gp_s3_source *gp_s3_get_source(const gp_s3 *s3);

/* Call `visit` for every object whose key starts with `prefix`, in key order. A status other than
 * GP_OK from `visit` ends the listing and is returned. GP_ENOENT: the bucket does not exist. A
 * prefix without objects is not an error. */
gp_status gp_s3_list(gp_s3 *s3, const char *prefix, gp_s3_visit visit, void *context, gp_error *err);

#define GP_S3_REST UINT64_MAX

/* Byte range of an object. Fields marked "out" are set by gp_s3_read(). */
typedef struct gp_s3_range {
    const char *key;
    /* bytes = GP_S3_REST: everything from offset to the end, up to the buffer's limit */
    uint64_t offset, bytes;
    /* in: required tag; 0: any. out: the object's tag; 0: the server sent none */
    uint64_t tag;
    uint64_t object_bytes; /* out: size of the whole object */
} gp_s3_range;

/* Read a range into `out`, replacing the contents.
 *
 *   GP_ENOENT: the object does not exist
 *   GP_ECORRUPT: the object differs from the listed one, or its size from the announced one
 *   GP_EPERM: access denied
 *   GP_EIO: all attempts failed */
gp_status gp_s3_read(gp_s3 *s3, gp_s3_range *range, gp_buffer *out, gp_error *err);

/* Requests sent and retries so far. */
typedef struct gp_s3_stats {
    uint64_t requests, retries;
} gp_s3_stats;

gp_s3_stats gp_s3_get_stats(const gp_s3 *s3);

#endif
