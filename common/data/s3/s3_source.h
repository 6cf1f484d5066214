/* Data sources in S3, as written by users:
 *
 *   s3://BUCKET/PREFIX[?OPTION=VALUE&...]
 *
 *   endpoint=URL       S3-compatible service; default AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the
 *                      profile, AWS
 *   region=NAME        default AWS_REGION, AWS_DEFAULT_REGION, the profile, us-east-1
 *   path-style=yes|no  URL/BUCKET/KEY or BUCKET.URL/KEY; default: yes with an endpoint, or with a
 *                      dot in the bucket name
 *   anonymous=yes      do not sign requests
 *   profile=NAME       profile in the credentials file; default AWS_PROFILE, "default"
 *   cache=SIZE         size of the disk cache, such as 20GiB; 0: none
 *
 * A question mark that is not followed by an option name belongs to the key. */
#ifndef GP_S3_SOURCE_H
#define GP_S3_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_S3_KEY_BYTES_MAX = 1024, GP_S3_SOURCE_BYTES_MAX = 2048, GP_S3_URL_BYTES_MAX = 4096 };

#define GP_S3_CACHE_BYTES ((uint64_t)8 << 30)

/* A parsed source. */
typedef struct gp_s3_source {
    char bucket[64];
    char key[GP_S3_KEY_BYTES_MAX + 1]; /* key or prefix, without a trailing slash */
    char endpoint[256];                /* without a trailing slash; "": AWS */
    char region[64];                   /* "": not yet decided */
    char profile[64];                  /* "": the default profile */
    bool path_style, path_style_given, anonymous;
    uint64_t cache_bytes;
    bool cache_given;
} gp_s3_source;

/* Return whether a source is in S3. */
bool gp_s3_is(const char *text);

/* Parse a source. GP_EINVAL: malformed; the message explains the correct form. GP_ELIMIT: the key
 * is too long. */
gp_status gp_s3_source_parse(gp_s3_source *out, const char *text, gp_error *err);

/* Fill in missing settings from the environment and the profile, so that another process with
 * neither can use the source. */
gp_status gp_s3_source_complete(gp_s3_source *source, gp_error *err);

/* Format a source as text, with options unless `bare`. GP_ELIMIT: the text does not fit. */
gp_status gp_s3_source_format(const gp_s3_source *source, bool bare, char *text, size_t bytes, gp_error *err);

/* Parse a size such as "20GiB", "500MB" or "1048576". Return false if it is malformed. */
bool gp_s3_size_parse(const char *text, uint64_t *bytes);

/* Percent-encode all characters except letters, digits, -_.~ (RFC 3986, 2.3) and, with
 * keep_slashes, slashes. Return false if the result does not fit. */
bool gp_s3_encode(char *out, size_t bytes, const char *text, bool keep_slashes);

/* Build the URL of a key; "" is the bucket. GP_ELIMIT: too long. GP_EUNSUPPORTED: the key has a
 * component . or .., which no URL can contain. */
gp_status gp_s3_url(const gp_s3_source *source, const char *key, char *url, size_t bytes, gp_error *err);

#endif
