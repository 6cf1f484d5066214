/* Parse and format s3:// sources, and build request URLs. */
#include "common/data/s3/s3_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/data/s3/s3_credentials.h"

static const char scheme[] = "s3://";

typedef struct s3_option {
    const char *name;
    bool (*take)(gp_s3_source *source, const char *value);
    const char *wanted;
} s3_option;

bool gp_s3_is(const char *text)
{
    return strncmp(text, scheme, sizeof(scheme) - 1) == 0;
}

static bool text_copy(char *out, size_t bytes, const char *value)
{
    if (value[0] == '\0' || strlen(value) >= bytes)
        return false;
    for (const char *at = value; *at != '\0'; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f || *at == '&' || *at == '?' || *at == '"')
            return false;
    strcpy(out, value);
    return true;
}

/* Set the endpoint. Return false unless it is an http or https URL with only a host and an optional
 * port. */
static bool endpoint_take(gp_s3_source *source, const char *value)
{
    size_t length;

    if (strncmp(value, "http://", 7) != 0 && strncmp(value, "https://", 8) != 0)
        return false;
    length = strcspn(strstr(value, "://") + 3, "/");
    if (length == 0)
        return false;
    if (!text_copy(source->endpoint, sizeof(source->endpoint), value))
        return false;
    length = strlen(source->endpoint);
    while (length > 0 && source->endpoint[length - 1] == '/')
        source->endpoint[--length] = '\0';

    /* Reject a user name and password in the URL: the endpoint is shown in messages. Reject a path,
     * too. */
    return strchr(source->endpoint, '@') == NULL && strchr(strstr(source->endpoint, "://") + 3, '/') == NULL;
}

static bool region_take(gp_s3_source *source, const char *value)
{
    return strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
               strlen(value) &&
           text_copy(source->region, sizeof(source->region), value);
}

static bool profile_take(gp_s3_source *source, const char *value)
{
    return strpbrk(value, "[]\n") == NULL && text_copy(source->profile, sizeof(source->profile), value);
}

static bool yes_or_no(const char *value, bool *out)
{
    *out = strcmp(value, "yes") == 0;
    return *out || strcmp(value, "no") == 0;
}

static bool path_style_take(gp_s3_source *source, const char *value)
{
    source->path_style_given = true;
    return yes_or_no(value, &source->path_style);
}

static bool anonymous_take(gp_s3_source *source, const char *value)
{
    return yes_or_no(value, &source->anonymous);
}

static bool cache_take(gp_s3_source *source, const char *value)
{
    source->cache_given = true;
    return gp_s3_size_parse(value, &source->cache_bytes);
}

static const s3_option options[] = {
    { "endpoint", endpoint_take, "a URL such as http://localhost:9000 or https://s3.example.org" },
    { "region", region_take, "a name such as eu-central-1" },
    { "path-style", path_style_take, "yes or no" },
    { "anonymous", anonymous_take, "yes or no" },
    { "profile", profile_take, "a profile of the credentials file" },
    { "cache", cache_take, "a size such as 20GiB, or 0" },
};

static const s3_option *option_find(const char *text, size_t *value)
{
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        size_t length = strlen(options[i].name);

        if (strncmp(text, options[i].name, length) == 0 && text[length] == '=') {
            *value = length + 1;
            return &options[i];
        }
    }
    return NULL;
}

bool gp_s3_size_parse(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = { { "", 1 },         { "B", 1 },         { "K", 1024 },      { "KiB", 1024 },
                  { "KB", 1e3 },     { "M", 1 << 20 },   { "MiB", 1 << 20 }, { "MB", 1e6 },
                  { "G", 1 << 30 },  { "GiB", 1 << 30 }, { "GB", 1e9 },      { "T", 0x1p40 },
                  { "TiB", 0x1p40 }, { "TB", 1e12 } };
    char *end;
    double value;

    if (text[0] < '0' || text[0] > '9')
        return false;
    value = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(end, units[i].name) == 0 && value * units[i].factor < 0x1p60) {
            *bytes = (uint64_t)(value * units[i].factor);
            return true;
        }
    return false;
}

static gp_status options_parse(gp_s3_source *out, const char *text, const char *query, gp_error *err)
{
    char word[320];

    for (const char *at = query; *at != '\0';) {
        size_t length = strcspn(at, "&"), value = 0;
        const s3_option *option;

        snprintf(word, sizeof(word), "%.*s", (int)length, at);
        option = length < sizeof(word) ? option_find(word, &value) : NULL;
        if (option == NULL)
            return gp_fail(err, GP_EINVAL,
                           "%s: unknown option \"%.40s\"; must be endpoint, region, path-style, anonymous, "
                           "profile or cache",
                           text, word);
        if (!option->take(out, word + value))
            return gp_fail(err, GP_EINVAL, "%s: the %s is \"%s\"; must be %s", text, option->name,
                           word + value, option->wanted);
        at += length + (at[length] == '&');
    }
    return GP_OK;
}

gp_status gp_s3_source_parse(gp_s3_source *out, const char *text, gp_error *err)
{
    gp_s3_source source = { .cache_bytes = GP_S3_CACHE_BYTES };
    const char *bucket = text + sizeof(scheme) - 1, *key, *query = strrchr(text, '?');
    size_t length, key_length, value;
    gp_status status = GP_OK;

    if (!gp_s3_is(text))
        return gp_fail(err, GP_EINVAL, "%s must be s3://BUCKET/PREFIX", text);
    if (query != NULL && option_find(query + 1, &value) == NULL)
        query = NULL;
    length = strcspn(bucket, "/?");
    if (length < 3 || length >= sizeof(source.bucket) ||
        strspn(bucket, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") < length)
        return gp_fail(err, GP_EINVAL,
                       "%s: invalid bucket name: must be 3 to 63 letters, digits, dots and dashes, as in "
                       "s3://BUCKET/PREFIX",
                       text);
    memcpy(source.bucket, bucket, length);
    key = bucket + length + strspn(bucket + length, "/");
    key_length = query == NULL ? strlen(key) : query < key ? 0 : (size_t)(query - key);
    while (key_length > 0 && key[key_length - 1] == '/')
        key_length--;
    if (key_length > GP_S3_KEY_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%.80s...: the key has more than %d bytes", text, GP_S3_KEY_BYTES_MAX);
    memcpy(source.key, key, key_length);
    if (query != NULL)
        status = options_parse(&source, text, query + 1, err);
    if (status == GP_OK)
        *out = source;
    return status;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value == NULL || value[0] == '\0' ? NULL : value;
}

/* Take a setting from the first variable that is set, or else from the profile. GP_EINVAL: the
 * value is malformed; the message names its origin. */
static gp_status setting_find(gp_s3_source *source, const char *const *variables, const char *setting,
                              bool (*take)(gp_s3_source *, const char *), const char *wanted, gp_error *err)
{
    char value[256];

    for (; *variables != NULL; variables++)
        if (variable(*variables) != NULL)
            return take(source, variable(*variables)) ? GP_OK
                                                      : gp_fail(err, GP_EINVAL, "%s is \"%s\"; must be %s",
                                                                *variables, variable(*variables), wanted);
    if (!gp_s3_profile_get(source->profile, setting, value, sizeof(value)))
        return GP_OK;
    return take(source, value) ? GP_OK
                               : gp_fail(err, GP_EINVAL, "the %s of the profile is \"%s\"; must be %s",
                                         setting, value, wanted);
}

gp_status gp_s3_source_complete(gp_s3_source *source, gp_error *err)
{
    static const char *const endpoints[] = { "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL };
    static const char *const regions[] = { "AWS_REGION", "AWS_DEFAULT_REGION", NULL };
    gp_status status = GP_OK;

    /* If the environment has credentials, they take precedence over a profile that only AWS_PROFILE
     * names. */
    if (source->profile[0] == '\0' && variable("AWS_PROFILE") != NULL &&
        variable("AWS_ACCESS_KEY_ID") == NULL && !profile_take(source, variable("AWS_PROFILE")))
        return gp_fail(err, GP_EINVAL, "AWS_PROFILE is not a valid profile name");
    if (source->endpoint[0] == '\0')
        status = setting_find(source, endpoints, "endpoint_url", endpoint_take, options[0].wanted, err);
    if (status == GP_OK && source->region[0] == '\0')
        status = setting_find(source, regions, "region", region_take, options[1].wanted, err);
    if (status == GP_OK && source->region[0] == '\0')
        strcpy(source->region, "us-east-1");
    if (!source->path_style_given) {
        /* A certificate for *.s3.amazonaws.com does not match a.b.s3.amazonaws.com. */
        source->path_style = source->endpoint[0] != '\0' || strchr(source->bucket, '.') != NULL;
        source->path_style_given = true;
    }
    return status;
}

gp_status gp_s3_source_format(const gp_s3_source *source, bool bare, char *text, size_t bytes, gp_error *err)
{
    const bool given[] = { source->endpoint[0] != '\0', source->region[0] != '\0',  source->path_style_given,
                           source->anonymous,           source->profile[0] != '\0', source->cache_given };
    char cache[24];
    const char *values[] = { source->endpoint, source->region, source->path_style ? "yes" : "no", "yes",
                             source->profile,  cache };
    char separator = '?';
    size_t used = (size_t)snprintf(text, bytes, "%s%s%s%s", scheme, source->bucket,
                                   source->key[0] == '\0' ? "" : "/", source->key);

    snprintf(cache, sizeof(cache), "%llu", (unsigned long long)source->cache_bytes);
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]) && !bare && used < bytes; i++) {
        if (!given[i])
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%c%s=%s", separator, options[i].name, values[i]);
        separator = '&';
    }
    return used < bytes ? GP_OK
                        : gp_fail(err, GP_ELIMIT, "the source s3://%s/%.80s... has more than %zu bytes",
                                  source->bucket, source->key, bytes);
}

bool gp_s3_encode(char *out, size_t bytes, const char *text, bool keep_slashes)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t used = 0;

    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                     c == '_' || c == '.' || c == '~' || (c == '/' && keep_slashes);

        if (used + (plain ? 1 : 3) >= bytes)
            return false;
        if (plain) {
            out[used++] = (char)c;
        } else {
            out[used++] = '%';
            out[used++] = digits[c >> 4];
            out[used++] = digits[c & 15];
        }
    }
    out[used] = '\0';
    return true;
}

gp_status gp_s3_url(const gp_s3_source *source, const char *key, char *url, size_t bytes, gp_error *err)
{
    char host[384], encoded[3 * GP_S3_KEY_BYTES_MAX + 1], slashed[GP_S3_KEY_BYTES_MAX + 3];
    const char *base = host, *name;
    int length;

    if (source->endpoint[0] != '\0')
        snprintf(host, sizeof(host), "%s", source->endpoint);
    else
        snprintf(host, sizeof(host), "https://s3.%s.amazonaws.com%s", source->region,
                 strncmp(source->region, "cn-", 3) == 0 ? ".cn" : "");
    if (strlen(key) > GP_S3_KEY_BYTES_MAX || !gp_s3_encode(encoded, sizeof(encoded), key, true))
        return gp_fail(err, GP_ELIMIT, "the key %.80s... has more than %d bytes", key, GP_S3_KEY_BYTES_MAX);
    /* URL parsers remove such components, and newer versions of libcurl do not sign URLs that keep
     * them. */
    snprintf(slashed, sizeof(slashed), "/%s/", key);
    if (strstr(slashed, "/./") != NULL || strstr(slashed, "/../") != NULL)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "the key %.200s has the component . or .., which URLs do not support", key);
    name = strstr(host, "://") + 3;
    if (source->path_style)
        length = snprintf(url, bytes, "%s/%s/%s", base, source->bucket, encoded);
    else
        length =
            snprintf(url, bytes, "%.*s%s.%s/%s", (int)(name - host), host, source->bucket, name, encoded);
    return length > 0 && (size_t)length < bytes
               ? GP_OK
               : gp_fail(err, GP_ELIMIT, "the URL of the key %.80s... has more than %zu bytes", key, bytes);
}
