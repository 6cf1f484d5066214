/* s3.h -- objects of one bucket: listed, and read in ranges, from any number of threads.
 *
 * Requests are signed by libcurl (AWS Signature Version 4).  Each thread that is in a call has a connection of its own, which
 * is kept for the next call.
 *
 *   request --2xx--> done                          the right number of bytes, of the object that was listed
 *      ^ `--> 5xx, 408, 429, cut, stalled, refused --> wait 0.2 s, doubled each time, less up to half at random --.
 *      |-------------------------------------------------------------------------------- up to 5 tries ----------'
 *      `--403 with credentials that have changed meanwhile (refreshed secrets, a rewritten file): at once, with the new ones
 *   anything else: an error that says what S3 said, and what helps */
#ifndef GP_S3_H
#define GP_S3_H

#include "common/base/memory/buffer.h"
#include "common/data/s3/s3_source.h"
#include "common/data/s3/s3_xml.h"

enum { GP_S3_CONNECTIONS_MAX = 64 };

typedef struct gp_s3 gp_s3; /* opaque */

/* 0: the default. */
typedef struct gp_s3_patience {
    uint32_t tries;     /* 5 */
    uint32_t wait_ms;   /* before the second try: 200 */
    uint32_t connect_s; /* to connect: 10 */
    uint32_t stall_s;   /* with fewer than 1,024 bytes a second: 20 */
} gp_s3_patience;

/* gp_s3_open -- nothing is asked of the server yet.  The source is completed (gp_s3_source_complete()); patience may be NULL.
 * GP_ENOENT: no libcurl.  GP_EPERM: no credentials. */
gp_status gp_s3_open(gp_s3 **out, const gp_s3_source *source, const gp_s3_patience *patience, gp_error *err);
void gp_s3_close(gp_s3 *s3); /* accepts NULL; no thread is in a call */

const gp_s3_source *gp_s3_get_source(const gp_s3 *s3);

/* gp_s3_list -- visit every object whose key begins with prefix, in the order of the keys.  What visit() returns ends it.
 * GP_ENOENT: no such bucket; a prefix without objects is no error here. */
gp_status gp_s3_list(gp_s3 *s3, const char *prefix, gp_s3_visit visit, void *context, gp_error *err);

#define GP_S3_REST UINT64_MAX

typedef struct gp_s3_range {
    const char *key;
    uint64_t offset, bytes; /* GP_S3_REST: all behind offset, as far as the buffer may grow */
    uint64_t tag;           /* what its tag has to be, 0: any.  On return its own, 0: the server gives none */
    uint64_t object_bytes;  /* on return, of the whole object */
} gp_s3_range;

/* gp_s3_read -- replace what is in out by the bytes of the range.
 * GP_ENOENT: no such object.  GP_ECORRUPT: it is another than was listed, or longer or shorter than the server said.
 * GP_EPERM: refused.  GP_EIO: not to be had after all tries. */
gp_status gp_s3_read(gp_s3 *s3, gp_s3_range *range, gp_buffer *out, gp_error *err);

/* Requests sent and tries repeated so far. */
typedef struct gp_s3_stats {
    uint64_t requests, retries;
} gp_s3_stats;

gp_s3_stats gp_s3_get_stats(const gp_s3 *s3);

#endif
