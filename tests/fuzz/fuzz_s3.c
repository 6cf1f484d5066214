/* fuzz_s3.c: hostile input from an S3 server, a file or a user. The first byte selects the format:
 * listing, error, profile, source. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/s3/s3_credentials.h"
#include "common/data/s3/s3_source.h"
#include "common/data/s3/s3_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static gp_status object_check(void *context, const gp_s3_object *object, gp_error *err)
{
    uint64_t *objects = context;

    (void)err;
    if (object->key[0] == '\0' || strlen(object->key) >= GP_S3_TEXT_BYTES_MAX || object->bytes >> 60 != 0)
        abort();
    ++*objects;
    return GP_OK;
}

static void listing_run(const char *text, size_t bytes)
{
    uint64_t objects = 0;
    gp_error err = { GP_OK, "" };
    gp_s3_page page;

    if (gp_s3_page_parse(&page, text, bytes, "input", object_check, &objects, &err) != GP_OK &&
        err.message[0] == '\0')
        abort();
    if (objects > GP_S3_PAGE_OBJECTS_MAX || objects * 40 > bytes)
        abort();
}

static void profile_run(const char *text)
{
    char value[64];

    if (gp_s3_ini_get(text, "default", "region", value, sizeof(value)) && strlen(value) >= sizeof(value))
        abort();
    gp_s3_ini_get(text, "p", "aws_secret_access_key", value, sizeof(value));
}

/* Parse a source. An accepted source survives a round trip. */
static void source_run(const char *text)
{
    char again[GP_S3_SOURCE_BYTES_MAX], third[GP_S3_SOURCE_BYTES_MAX], url[GP_S3_URL_BYTES_MAX];
    gp_error err = { GP_OK, "" };
    gp_s3_source source, other;

    if (gp_s3_source_parse(&source, text, &err) != GP_OK) {
        if (err.message[0] == '\0')
            abort();
        return;
    }
    if (gp_s3_source_format(&source, false, again, sizeof(again), NULL) != GP_OK)
        return;
    if (gp_s3_source_parse(&other, again, NULL) != GP_OK ||
        gp_s3_source_format(&other, false, third, sizeof(third), NULL) != GP_OK || strcmp(again, third) != 0)
        abort();
    gp_s3_url(&source, source.key, url, sizeof(url), NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t live = gp_alloc_get_stats().live;
    char *text = bytes == 0 ? NULL : gp_malloc(bytes);
    gp_s3_problem problem;

    if (text == NULL)
        return 0;
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    if (data[0] == 'l')
        listing_run(text, bytes - 1);
    if (data[0] == 'e')
        gp_s3_problem_parse(&problem, text, bytes - 1);
    if (data[0] == 'p')
        profile_run(text);
    if (data[0] == 's')
        source_run(text);
    gp_free(text);
    if (gp_alloc_get_stats().live != live)
        abort();
    return 0;
}
