/* Find S3 credentials: first in the pool's secrets, then in the environment, then in the two AWS
 * configuration files. */
#ifndef GP_S3_CREDENTIALS_H
#define GP_S3_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

enum { GP_S3_TOKEN_BYTES_MAX = 8192 }; /* session tokens have about 1,000 bytes */

/* S3 credentials. Wipe them with gp_secret_wipe() after use. */
typedef struct gp_s3_credentials {
    char id[160], secret[256], token[GP_S3_TOKEN_BYTES_MAX]; /* token "": none */
    /* origin for messages; contains no secret */
    char from[200];
} gp_s3_credentials;

/* Find credentials. The caller wipes them with gp_secret_wipe(). Calling this disables core dumps
 * for the process. profile "": AWS_PROFILE, or else "default". GP_EPERM: none found; the message
 * lists the places searched and a remedy. */
gp_status gp_s3_credentials_find(gp_s3_credentials *out, const char *profile, gp_error *err);

/* Get a setting such as "region" from a profile in ~/.aws/config (AWS_CONFIG_FILE). Return false if
 * it is not set. */
bool gp_s3_profile_get(const char *profile, const char *setting, char *value, size_t bytes);

/* Get a setting from a section ([NAME] or [profile NAME]) of configuration text. The text has `name
 * = value` lines, and comments after # or ;. The last occurrence wins. Return false if there is
 * none. */
bool gp_s3_ini_get(const char *text, const char *section, const char *setting, char *value, size_t bytes);

#endif
