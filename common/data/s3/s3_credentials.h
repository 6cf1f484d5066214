/* s3_credentials.h -- who we are to S3: from the pool's secrets, the environment, or AWS's two files, in this order. */
#ifndef GP_S3_CREDENTIALS_H
#define GP_S3_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

enum { GP_S3_TOKEN_BYTES_MAX = 8192 }; /* session tokens have some 1,000 */

typedef struct gp_s3_credentials {
    char id[160], secret[256], token[GP_S3_TOKEN_BYTES_MAX]; /* token "": none */
    char from[200]; /* where they are from, for people: no value of them */
} gp_s3_credentials;

/* gp_s3_credentials_find -- wiped by gp_secret_wipe().  A process that has found any leaves no core file from then on.
 *   profile  "" = AWS_PROFILE, else "default"
 * GP_EPERM: none; the message lists where they were looked for and what helps. */
gp_status gp_s3_credentials_find(gp_s3_credentials *out, const char *profile, gp_error *err);

/* gp_s3_profile_get -- a setting of a profile in ~/.aws/config (AWS_CONFIG_FILE), such as "region". */
bool gp_s3_profile_get(const char *profile, const char *setting, char *value, size_t bytes);

/* gp_s3_ini_get -- a setting of a section of such a file's text: [NAME] or [profile NAME], lines of `name = value`, comments
 * after # and ;.  The last one counts. */
bool gp_s3_ini_get(const char *text, const char *section, const char *setting, char *value, size_t bytes);

#endif
