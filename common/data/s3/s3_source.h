/* s3_source.h -- what a user writes for data in S3, and what S3 is sent for it.
 *
 *   s3://BUCKET/PREFIX[?OPTION=VALUE&...]
 *
 *   endpoint=URL      another service that speaks S3; default AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's, AWS
 *   region=NAME       default AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1
 *   path-style=yes|no URL/BUCKET/KEY or BUCKET.URL/KEY; default: yes with an endpoint or a dot in the bucket's name
 *   anonymous=yes     requests are not signed
 *   profile=NAME      of the credentials file; default AWS_PROFILE, "default"
 *   cache=SIZE        of the cache on disk, as 20GiB; 0: none
 *
 * A question mark that no option's name follows belongs to the key. */
#ifndef GP_S3_SOURCE_H
#define GP_S3_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_S3_KEY_BYTES_MAX = 1024, GP_S3_SOURCE_BYTES_MAX = 2048, GP_S3_URL_BYTES_MAX = 4096 };

#define GP_S3_CACHE_BYTES ((uint64_t)8 << 30)

typedef struct gp_s3_source {
    char bucket[64];
    char key[GP_S3_KEY_BYTES_MAX + 1]; /* or prefix, without a slash at its end */
    char endpoint[256];                /* without a slash at its end; "" = AWS */
    char region[64];                   /* "" = not decided */
    char profile[64];                  /* "" = the default one */
    bool path_style, path_style_given, anonymous;
    uint64_t cache_bytes;
    bool cache_given;
} gp_s3_source;

/* Whether a source is in S3. */
bool gp_s3_is(const char *text);

/* gp_s3_source_parse -- GP_EINVAL: the message says what is wrong and how it should read. */
gp_status gp_s3_source_parse(gp_s3_source *out, const char *text, gp_error *err);

/* gp_s3_source_complete -- fill in what is left open, from the environment and the profile, so that another process that
 * has neither finds the same. */
gp_status gp_s3_source_complete(gp_s3_source *source, gp_error *err);

/* gp_s3_source_format -- the text again, with its options unless `bare`.  GP_ELIMIT. */
gp_status gp_s3_source_format(const gp_s3_source *source, bool bare, char *text, size_t bytes, gp_error *err);

/* "20GiB", "500MB", "1048576"; false: not a size. */
bool gp_s3_size_parse(const char *text, uint64_t *bytes);

/* gp_s3_encode -- percent-encode all but letters, digits and -_.~ (RFC 3986, 2.3) and, in keys, slashes.  false: no room. */
bool gp_s3_encode(char *out, size_t bytes, const char *text, bool keep_slashes);

/* gp_s3_url -- of a key; "" is the bucket itself.  GP_ELIMIT.  GP_EUNSUPPORTED: a component that is . or .., which no URL has. */
gp_status gp_s3_url(const gp_s3_source *source, const char *key, char *url, size_t bytes, gp_error *err);

#endif
