/* Find S3 credentials in the pool's secrets, the environment, or the AWS files. */
#include "common/data/s3/s3_credentials.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/secret.h"
#include "common/base/system/file.h"

enum { FILE_BYTES_MAX = 1 << 20 };

/* ---- AWS files ---- */

/* Remove blanks at both ends, in place. */
static char *trim(char *text)
{
    char *end;

    while (isspace((unsigned char)*text))
        text++;
    for (end = text + strlen(text); end > text && isspace((unsigned char)end[-1]);)
        *--end = '\0';
    return text;
}

bool gp_s3_ini_get(const char *text, const char *section, const char *setting, char *value, size_t bytes)
{
    char line[GP_S3_TOKEN_BYTES_MAX + 256];
    bool inside = false, found = false;

    for (size_t length; *text != '\0'; text += length + (text[length] == '\n')) {
        length = strcspn(text, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)length, text);
        char *at = trim(line), *equals = strchr(at, '=');
        const size_t last = at[0] == '\0' ? 0 : strlen(at) - 1;

        if (*at == '[') {
            inside = at[last] == ']';
            at[last] = '\0';
            at = trim(at + (last > 0));
            if (strncmp(at, "profile", 7) == 0 && isspace((unsigned char)at[7]))
                at = trim(at + 8); /* [NAME] and [profile NAME] are equivalent */
            inside = inside && strcmp(at, section) == 0;
        } else if (inside && *at != '#' && *at != ';' && equals != NULL) {
            *equals++ = '\0';
            equals = trim(equals);
            if (strcasecmp(trim(at), setting) != 0 || *equals == '\0' || strlen(equals) >= bytes)
                continue;
            strcpy(value, equals);
            found = true;
        }
    }
    gp_secret_wipe(line, sizeof(line));
    return found;
}

static bool file_path(char path[PATH_MAX], const char *variable, const char *below_home)
{
    const char *named = getenv(variable), *home = getenv("HOME");

    if (named != NULL && named[0] != '\0')
        return snprintf(path, PATH_MAX, "%s", named) < PATH_MAX;
    return home != NULL && home[0] == '/' && snprintf(path, PATH_MAX, "%s/%s", home, below_home) < PATH_MAX;
}

/* Read a whole file. NULL: no such file, or larger than FILE_BYTES_MAX. file_free() wipes and frees
 * the text. */
static char *file_read(const char *path, size_t *bytes)
{
    uint8_t *text = NULL;

    return gp_file_read(&text, bytes, path, FILE_BYTES_MAX, NULL) == GP_OK ? (char *)text : NULL;
}

static void file_free(char *text, size_t bytes)
{
    if (text != NULL)
        gp_secret_wipe(text, bytes);
    gp_free(text);
}

static const char *profile_name(const char *profile)
{
    const char *variable = getenv("AWS_PROFILE");

    if (profile[0] != '\0')
        return profile;
    return variable != NULL && variable[0] != '\0' ? variable : "default";
}

bool gp_s3_profile_get(const char *profile, const char *setting, char *value, size_t bytes)
{
    char path[PATH_MAX];
    size_t file_bytes = 0;
    char *text = file_path(path, "AWS_CONFIG_FILE", ".aws/config") ? file_read(path, &file_bytes) : NULL;
    bool found = text != NULL && gp_s3_ini_get(text, profile_name(profile), setting, value, bytes);

    file_free(text, file_bytes);
    return found;
}

static bool file_find(gp_s3_credentials *out, const char *variable, const char *below_home,
                      const char *profile)
{
    char path[PATH_MAX];
    size_t bytes = 0;
    char *text = file_path(path, variable, below_home) ? file_read(path, &bytes) : NULL;
    bool found = text != NULL &&
                 gp_s3_ini_get(text, profile, "aws_access_key_id", out->id, sizeof(out->id)) &&
                 gp_s3_ini_get(text, profile, "aws_secret_access_key", out->secret, sizeof(out->secret));

    if (found)
        gp_s3_ini_get(text, profile, "aws_session_token", out->token, sizeof(out->token));
    file_free(text, bytes);
    if (found)
        snprintf(out->from, sizeof(out->from), "the profile \"%.60s\" in %.100s", profile, path);
    return found;
}

/* ---- environment variables ---- */

static bool variable_get(const char *name, char *value, size_t bytes)
{
    const char *text = getenv(name);

    return text != NULL && text[0] != '\0' && snprintf(value, bytes, "%s", text) < (int)bytes;
}

static bool variables_find(gp_s3_credentials *out, bool (*get)(const char *, char *, size_t),
                           const char *from)
{
    if (!get("AWS_ACCESS_KEY_ID", out->id, sizeof(out->id)) ||
        !get("AWS_SECRET_ACCESS_KEY", out->secret, sizeof(out->secret)))
        return false;
    if (!get("AWS_SESSION_TOKEN", out->token, sizeof(out->token)))
        out->token[0] = '\0';
    snprintf(out->from, sizeof(out->from), "%s", from);
    return true;
}

gp_status gp_s3_credentials_find(gp_s3_credentials *out, const char *profile, gp_error *err)
{
    const char *name = profile_name(profile);

    gp_secret_guard();
    *out = (gp_s3_credentials){ .token = "" };
    /* A profile requested by name takes precedence over secrets and environment. */
    if ((profile[0] == '\0' &&
         variables_find(out, gp_secrets_get, "the secrets of the pool (`gradpool up --secret-env`)")) ||
        (profile[0] == '\0' && variables_find(out, variable_get, "the environment (AWS_ACCESS_KEY_ID)")) ||
        file_find(out, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", name) ||
        file_find(out, "AWS_CONFIG_FILE", ".aws/config", name))
        return GP_OK;
    gp_secret_wipe(out, sizeof(*out));
    return gp_fail(err, GP_EPERM,
                   "no S3 credentials: they are not in the secrets of the pool, AWS_ACCESS_KEY_ID and "
                   "AWS_SECRET_ACCESS_KEY are not in the environment, and ~/.aws/credentials has no profile "
                   "\"%.60s\"; pass them to the pool with `gradpool up --secret-env "
                   "AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY`; for a public bucket use --s3-anonymous",
                   name);
}
