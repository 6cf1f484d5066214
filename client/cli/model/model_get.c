/* `gradpool model get`: download a pretrained network to the cache, by known name or by URL. */
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "client/cli/model/model_verbs.h"
#include "client/cli/show.h"
#include "common/base/memory/hash.h"
#include "common/base/system/cached.h"
#include "common/base/text/json.h"
#include "common/base/text/spell.h"
#include "common/data/store/store.h"

enum { URL_BYTES = 2048, NAME_BYTES = 200, FOLDER_BYTES = 17 };

/* Download source: a set with one file. */
typedef struct net_source {
    gp_get_set set;
    gp_get_file file;
    char url[URL_BYTES], name[NAME_BYTES];
    char folder[FOLDER_BYTES]; /* below the cache folder of models; "": that folder */
} net_source;

/* Build a source from a URL; the last path component becomes the file name. Many URLs end in the
 * same file name, so each has a folder of its own. GP_EINVAL: the URL has a query or an unsafe file
 * name. */
static gp_status source_url(net_source *source, const char *url, gp_error *err)
{
    const char *query = url + strcspn(url, "?#"), *name = query;

    while (name > url && name[-1] != '/')
        name--;
    const size_t bytes = (size_t)(query - name);

    if (*query != '\0')
        return gp_fail(err, GP_EINVAL, "%s has a query or a fragment; give the plain URL of a file", url);
    if (strlen(url) >= sizeof(source->url) || bytes >= sizeof(source->name))
        return gp_fail(err, GP_ELIMIT, "the URL is longer than %d bytes", URL_BYTES - 1);
    if (bytes == 0 || *name == '.')
        return gp_fail(err, GP_EINVAL, "%s does not end in a file name", url);
    for (const char *c = name; c < query; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            return gp_fail(err, GP_EINVAL,
                           "the file name in %s has a '%c'; it must have only letters, digits and . _ -", url,
                           *c);
    snprintf(source->url, sizeof(source->url), "%.*s", (int)(name - url - 1), url);
    snprintf(source->name, sizeof(source->name), "%.*s", (int)bytes, name);
    snprintf(source->folder, sizeof(source->folder), "%016" PRIx64,
             gp_hash_add(GP_HASH_BEGIN, url, strlen(url)));
    source->file = (gp_get_file){ .name = source->name };
    source->set = (gp_get_set){ .name = source->name, .url = source->url };
    return GP_OK;
}

/* Find the source of a URL or a known name. GP_ENOENT: unknown; suggest a similar name, or list all
 * known names. */
static gp_status source_find(net_source *source, const char *name, gp_error *err)
{
    const char *near = NULL;
    unsigned distance = 0;
    char known[160] = "";

    if (strstr(name, "://") != NULL)
        return source_url(source, name, err);
    for (const gp_get_set *set = gp_get_models; set->name != NULL; set++) {
        size_t used = strlen(known);

        if (strcmp(set->name, name) == 0) {
            source->set = *set;
            source->file = set->files[0];
            return GP_OK;
        }
        gp_spell_offer(name, set->name, &near, &distance);
        snprintf(known + used, sizeof(known) - used, "%s%s", used == 0 ? "" : ", ", set->name);
    }
    if (near != NULL)
        return gp_fail(err, GP_ENOENT, "unknown trained model '%s'; did you mean '%s'?", name, near);
    return gp_fail(err, GP_ENOENT, "unknown trained model '%s'; give %s, or a URL", name, known);
}

/* Check --sha256 and convert it to lower case. GP_EINVAL: malformed, or different from the
 * published checksum.
 *   sum  buffer for the checksum; must outlive `source` */
static gp_status source_expect(net_source *source, const char *given, char sum[GP_GET_SUM_BYTES],
                               gp_error *err)
{
    size_t digits = strspn(given, "0123456789abcdefABCDEF");

    if (given[0] == '\0')
        return GP_OK;
    if (digits != GP_GET_SUM_BYTES - 1 || given[digits] != '\0')
        return gp_fail(err, GP_EINVAL, "--sha256 is '%s'; it must be 64 hexadecimal digits", given);
    for (size_t i = 0; i <= digits; i++)
        sum[i] = (char)tolower((unsigned char)given[i]);
    if (source->file.sum != NULL && strcmp(source->file.sum, sum) != 0)
        return gp_fail(err, GP_EINVAL, "--sha256 is %s, but the published sum of %s is %s", sum,
                       source->set.name, source->file.sum);
    source->file.sum = sum;
    return GP_OK;
}

static void get_report(const cli_call *call, const net_source *source, const char *path, const char *sum)
{
    const net_options *options = call->options;
    json_document json;

    if (!options->common.json) {
        if (source->file.sum == NULL && !options->common.quiet)
            fprintf(stderr, "SHA-256 %s\nthe file was not verified; to verify it, give --sha256 SUM\n", sum);
        printf("%s\n", path);
        return;
    }
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_put_text(writer, "path", path);
    gp_json_put_text(writer, "sha256", sum);
    gp_json_put_bool(writer, "checked", source->file.sum != NULL);
    show_json_print(&json, NULL);
}

gp_status net_get(cli_call *call, gp_error *err)
{
    const net_options *options = call->options;
    net_source source = { 0 };
    cli_progress progress;
    gp_get_options get;
    char directory[PATH_MAX], path[PATH_MAX + NAME_BYTES], given[GP_GET_SUM_BYTES], sum[GP_GET_SUM_BYTES];
    gp_status status = source_find(&source, call->words[1], err);

    if (status == GP_OK)
        status = source_expect(&source, options->sha256, given, err);
    if (status == GP_OK)
        status = gp_cache_path(directory, sizeof(directory), "models",
                               source.folder[0] != '\0' ? source.folder : NULL, err);
    if (status != GP_OK)
        return status;
    source.set.files = &source.file;
    source.set.file_count = 1;
    get = cli_progress_download(call, &progress, options->url);
    get.directory = directory;
    get.keep_part = true;
    status = gp_get_fetch(&source.set, &get, err);
    cli_progress_end(&progress);
    snprintf(path, sizeof(path), "%s/%s", directory, source.file.name);
    if (status == GP_OK)
        status = gp_get_sum(sum, path, err);
    if (status == GP_OK)
        get_report(call, &source, path, sum);
    return status;
}
