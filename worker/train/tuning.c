#include "worker/train/tuning.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/cached.h"
#include "common/base/memory/crc32c.h"
#include "common/base/text/json.h"
#include "common/data/store/store.h"

/* Increment it when engine names change: a choice with an unknown name is never timed again. */
enum { FORMAT = 2 };

static const char head_word[] = "gradpool-plans 1";

gp_status gp_tuning_init(gp_tuning *tuning, gp_error *err)
{
    *tuning = (gp_tuning){ .choices = gp_calloc(GP_CHOICES_MAX, sizeof(*tuning->choices)) };
    return tuning->choices != NULL ? GP_OK
                                   : gp_fail(err, GP_ENOMEM, "no memory for %d choices", GP_CHOICES_MAX);
}

void gp_tuning_deinit(gp_tuning *tuning)
{
    gp_free(tuning->choices);
    *tuning = (gp_tuning){ .choices = NULL };
}

/* ---- the document ---- */

/* Write the used choices, and up to `unused` of the newest other ones. */
static gp_status document_write(gp_buffer *out, const gp_tuning *tuning, const char *libraries,
                                uint32_t unused, gp_error *err)
{
    gp_json_writer writer;
    uint32_t others = 0;

    for (uint32_t i = 0; i < tuning->count; i++)
        others += !tuning->choices[i].used;
    gp_json_writer_init(&writer, out, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "format", FORMAT);
    gp_json_put_text(&writer, "libraries", libraries);
    gp_json_begin_array(&writer, "choices");
    for (uint32_t i = 0; i < tuning->count; i++) {
        const gp_choice *choice = &tuning->choices[i];

        if (!choice->used && others-- > unused)
            continue;
        gp_json_begin_object(&writer, NULL);
        gp_json_put_text(&writer, "what", choice->what);
        gp_json_put_text(&writer, "how", choice->how);
        gp_json_put_number(&writer, "us", choice->us);
        gp_json_end_object(&writer);
    }
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    return gp_json_writer_finish(&writer, err);
}

gp_status gp_tuning_write(gp_buffer *out, const gp_tuning *tuning, const char *libraries, gp_error *err)
{
    return document_write(out, tuning, libraries, 0, err);
}

/* Copy a printable string of fewer than `bytes` characters. false: invalid. */
static bool word_read(char *out, size_t bytes, const gp_json *value)
{
    const char *text = gp_json_text(value, "");
    size_t length = strlen(text);

    if (length == 0 || length >= bytes)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    memcpy(out, text, length + 1);
    return true;
}

static gp_status document_read(gp_tuning *tuning, const gp_json *document, const char *libraries,
                               gp_error *err)
{
    const gp_json *choices = gp_json_member(document, "choices");
    char made_with[GP_LIBRARIES_BYTES];

    if (gp_json_integer(gp_json_member(document, "format"), 0) != FORMAT || !gp_json_is_array(choices) ||
        !word_read(made_with, sizeof(made_with), gp_json_member(document, "libraries")) ||
        gp_json_count(choices) > GP_CHOICES_MAX)
        return gp_fail(err, GP_ECORRUPT, "unknown format of plans: must be format %d with at most %d choices",
                       FORMAT, GP_CHOICES_MAX);
    if (strcmp(made_with, libraries) != 0)
        return gp_fail(err, GP_ESTALE, "the plans were made with %s", made_with);
    for (size_t i = 0; i < gp_json_count(choices); i++) {
        const gp_json *value = gp_json_element(choices, i);
        gp_choice *choice = &tuning->choices[tuning->count++];

        *choice = (gp_choice){ .us = gp_json_number(gp_json_member(value, "us"), -1.0) };
        if (!(choice->us >= 0 && choice->us < 1e12) ||
            !word_read(choice->what, sizeof(choice->what), gp_json_member(value, "what")) ||
            !word_read(choice->how, sizeof(choice->how), gp_json_member(value, "how")))
            return gp_fail(err, GP_ECORRUPT, "choice %zu of the plans is malformed", i + 1);
    }
    return GP_OK;
}

gp_status gp_tuning_read(gp_tuning *tuning, const char *text, size_t bytes, const char *libraries,
                         gp_error *err)
{
    gp_json *document = NULL;
    gp_error why;
    gp_status status = GP_OK;

    tuning->count = 0;
    if (bytes > GP_TUNING_BYTES_MAX)
        return gp_fail(err, GP_ECORRUPT, "a file of plans has %zu bytes, at most %d are allowed", bytes,
                       GP_TUNING_BYTES_MAX);
    if (gp_json_parse(&document, text, bytes, &why) != GP_OK)
        return gp_fail(err, GP_ECORRUPT, "%s", why.message);
    status = document_read(tuning, document, libraries, err);
    gp_json_free(document);
    if (status != GP_OK)
        tuning->count = 0;
    return status;
}

/* ---- disk cache ---- */

gp_status gp_tuning_path(char *path, size_t path_bytes, const char *libraries, gp_error *err)
{
    char name[24];

    snprintf(name, sizeof(name), "%08" PRIx32 ".json", gp_crc32c(0, libraries, strlen(libraries)));
    return gp_cache_path(path, path_bytes, "plans", name, err);
}

gp_status gp_tuning_load(gp_tuning *tuning, const char *libraries, gp_error *err)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    gp_error why;
    gp_status status = gp_tuning_path(path, sizeof(path), libraries, err);

    tuning->count = 0;
    if (status == GP_OK)
        status = gp_cached_read(&text, &bytes, path, head_word, GP_TUNING_BYTES_MAX, err);
    if (status != GP_OK)
        return status;
    if (gp_tuning_read(tuning, text, bytes, libraries, &why) != GP_OK)
        status = gp_fail(err, why.code == GP_ENOMEM ? GP_ENOMEM : GP_ECORRUPT, "%s: %s", path, why.message);
    gp_free(text);
    return status;
}

gp_status gp_tuning_save(const gp_tuning *tuning, const char *libraries, gp_error *err)
{
    char path[PATH_MAX];
    uint32_t used = 0;
    gp_buffer text;
    gp_status status = gp_tuning_path(path, sizeof(path), libraries, err);

    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < tuning->count; i++)
        used += tuning->choices[i].used;
    gp_buffer_init(&text, GP_TUNING_BYTES_MAX);
    status = document_write(&text, tuning, libraries,
                            used < GP_CHOICES_MAX / 2 ? GP_CHOICES_MAX / 2 - used : 0, err);
    if (status == GP_OK)
        status = gp_cached_write(path, head_word, text.data, text.bytes, GP_TUNING_FILES_MAX, err);
    gp_buffer_deinit(&text);
    return status;
}
