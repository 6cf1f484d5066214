/* Resolve a data source name and open it as a store. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/cached.h"
#include "common/base/text/spell.h"
#include "common/data/source/image_store.h"
#include "common/data/source/objects.h"
#include "common/data/source/sources.h"

enum { PLACES_MAX = 32, NAME_BYTES_MAX = 256 };

/* Names to suggest for a misspelled one, besides the data sets found on disk. */
static const char *const known_names[] = { "fashion-mnist", "digits", "synthetic" };

/* Directories to search for data sets, in order. */
typedef struct place_list {
    char path[PLACES_MAX][PATH_MAX];
    size_t count;
} place_list;

/* List the directories in GRADPOOL_DATA, then the cache directory. */
static gp_status places_list(place_list *places, gp_error *err)
{
    const char *search = getenv("GRADPOOL_DATA");

    while (search != NULL && *search != '\0') {
        size_t length = strcspn(search, ":");

        if (length >= PATH_MAX || places->count == PLACES_MAX - 1)
            return gp_fail(err, GP_ELIMIT,
                           "GRADPOOL_DATA has more than %d directories, or a path that is too long",
                           PLACES_MAX - 1);
        if (length > 0)
            sprintf(places->path[places->count++], "%.*s", (int)length, search);
        search += length + (search[length] == ':');
    }
    /* Without a home directory there is no cache to search. */
    if (gp_cache_path(places->path[places->count], PATH_MAX, "data", NULL, NULL) == GP_OK)
        places->count++;
    return GP_OK;
}

static bool is_directory(const char *path)
{
    struct stat stat_;

    return stat(path, &stat_) == 0 && S_ISDIR(stat_.st_mode);
}

/* Find the sub-directory whose name is closest to `name`. Update *best and *distance if it is
 * closer than the best so far. */
static void place_offer(const char *place, const char *name, char *best, unsigned *distance)
{
    DIR *directory = opendir(place);
    struct dirent *entry;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        const char *nearest = best[0] == '\0' ? NULL : best;

        if (entry->d_name[0] == '.')
            continue;
        gp_spell_offer(name, entry->d_name, &nearest, distance);
        if (nearest == entry->d_name)
            snprintf(best, NAME_BYTES_MAX, "%s", nearest);
    }
    if (directory != NULL)
        closedir(directory);
}

/* Fail with a message that lists the directories searched and suggests the nearest known name. Of
 * "digit:100", only the word before the colon is compared. */
static gp_status name_not_found(const char *name, const place_list *places, gp_error *err)
{
    char best[NAME_BYTES_MAX] = "", looked[200] = "", hint[NAME_BYTES_MAX + 64] = "";
    const char *nearest = NULL, *rest = name + strcspn(name, ":");
    unsigned distance = 0;
    char word[PATH_MAX];

    snprintf(word, sizeof(word), "%.*s", (int)(rest - name), name);
    for (size_t i = 0; i < sizeof(known_names) / sizeof(known_names[0]); i++)
        gp_spell_offer(word, known_names[i], &nearest, &distance);
    if (nearest != NULL)
        snprintf(best, sizeof(best), "%s", nearest);
    for (size_t i = 0, length = 0; i < places->count; i++) {
        place_offer(places->path[i], word, best, &distance);
        if (length < sizeof(looked))
            length += (size_t)snprintf(looked + length, sizeof(looked) - length, ", %s", places->path[i]);
    }
    if (best[0] != '\0' && strcmp(best, word) != 0)
        snprintf(hint, sizeof(hint), "did you mean \"%s%.32s\"? ", best, rest);
    return gp_fail(err, GP_ENOENT,
                   "no data set \"%s\": %sdownload one with `gradpool data get fashion-mnist`, or generate "
                   "one with `gradpool data make digits DIR`. Searched the current directory%s%s",
                   name, hint, looked, getenv("GRADPOOL_DATA") == NULL ? " (GRADPOOL_DATA is not set)" : "");
}

gp_status gp_store_find(char *path, size_t path_bytes, const char *name, gp_error *err)
{
    place_list *places;
    struct stat stat_;
    gp_status status;
    bool found;

    if (name[0] == '\0')
        return gp_fail(err, GP_EINVAL,
                       "the data source is empty; pass a directory or a name such as fashion-mnist");
    if (strlen(name) >= path_bytes || strlen(name) >= PATH_MAX - NAME_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the data source has %zu bytes, which is too long", strlen(name));
    if (is_directory(name)) {
        strcpy(path, name);
        return GP_OK;
    }
    const char *slash = strrchr(name, '/');
    const bool exists = stat(name, &stat_) == 0;

    if (slash != NULL && !exists)
        return gp_fail_errno(err, errno == ENOENT || errno == ENOTDIR ? GP_ENOENT : GP_EIO,
                             "cannot open the data %s", name);
    if (exists && slash == name)
        return gp_fail(err, GP_EINVAL, "%s is a file of an unknown type; pass the directory of the data",
                       name);
    if (exists)
        return gp_fail(err, GP_EINVAL, "%s is a file; pass its directory: %.*s", name,
                       slash == NULL ? 1 : (int)(slash - name), slash == NULL ? "." : name);
    places = gp_calloc(1, sizeof(*places));
    if (places == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the search path");
    status = places_list(places, err);
    found = false;
    for (size_t i = 0; status == GP_OK && i < places->count && !found; i++)
        found = (size_t)snprintf(path, path_bytes, "%s/%s", places->path[i], name) < path_bytes &&
                is_directory(path);
    if (status == GP_OK && !found && strchr(name, ':') == NULL && strchr(name, '.') != NULL) /* a file name */
        status = gp_fail(err, GP_ENOENT, "cannot open the data %s: no such file or data set", name);
    else if (status == GP_OK && !found)
        status = name_not_found(name, places, err);
    gp_free(places);
    return status;
}

const char *gp_source_after_word(const char *source, const char *word)
{
    size_t length = strlen(word);

    if (strncmp(source, word, length) != 0 || (source[length] != ':' && source[length] != '\0'))
        return NULL;
    return source + length + (source[length] == ':');
}

typedef enum source_place { PLACE_NAME, PLACE_FILE, PLACE_FOLDER } source_place;

typedef struct source_kind {
    source_place place;
    const char *name;    /* if is == NULL: word or file ending that identifies the kind */
    gp_source_is_fn *is; /* NULL: identified by name */
    gp_source_open_fn *open;
} source_kind;

static const source_kind source_kinds[] = {
#define GP_SOURCE(place, is, open)         { PLACE_##place, NULL, is, open },
#define GP_SOURCE_NAMED(place, name, open) { PLACE_##place, name, NULL, open },
#include "common/data/source/sources.def"
#undef GP_SOURCE
#undef GP_SOURCE_NAMED
};

/* Return the first kind in the table that recognizes the source; NULL: none. */
static const source_kind *kind_at(source_place place, const char *source)
{
    for (size_t i = 0; i < sizeof(source_kinds) / sizeof(source_kinds[0]); i++) {
        const source_kind *kind = &source_kinds[i];
        const size_t length = strlen(source), end = kind->name == NULL ? 0 : strlen(kind->name);

        if (kind->place == place &&
            (kind->is != NULL      ? kind->is(source)
             : place == PLACE_NAME ? gp_source_after_word(source, kind->name) != NULL
                                   : length >= end && strcmp(source + length - end, kind->name) == 0))
            return kind;
    }
    return NULL;
}

/* Determine the kind of a source. *at is the argument for open(): the source, or the directory,
 * stored in `path`. */
static gp_status source_recognise(const source_kind **kind, const char **at, char path[PATH_MAX],
                                  const char *source, gp_error *err)
{
    struct stat stat_;

    *at = source;
    *kind = kind_at(PLACE_NAME, source);
    if (*kind == NULL && stat(source, &stat_) == 0 && S_ISREG(stat_.st_mode))
        *kind = kind_at(PLACE_FILE, source);
    if (*kind != NULL)
        return GP_OK;
    gp_status status = gp_store_find(path, PATH_MAX, source, err);

    if (status != GP_OK)
        return status;
    *at = path;
    *kind = kind_at(PLACE_FOLDER, path);
    return GP_OK;
}

gp_status gp_store_open(gp_store **out, const char *source, gp_data_role role, gp_error *err)
{
    return gp_store_open_with(out, source, role, &(gp_store_options){ 0 }, err);
}

gp_status gp_store_open_with(gp_store **out, const char *source, gp_data_role role,
                             const gp_store_options *options, gp_error *err)
{
    char path[PATH_MAX];
    const source_kind *kind;
    const char *at;
    gp_store *store;
    gp_status status = source_recognise(&kind, &at, path, source, err);

    if (status == GP_OK)
        status = kind->open(&store, at, role, options, err);
    if (status != GP_OK)
        return status;
    status = gp_store_renumber(store, options, err);
    if (status != GP_OK) {
        gp_store_close(store);
        return status;
    }
    *out = store;
    return GP_OK;
}

void gp_store_prepare(const char *source, gp_data_role role, const gp_progress *progress)
{
    const gp_store_options options = { .any_size = true, .cache_bytes = 1, .progress = progress };
    char path[PATH_MAX];
    const source_kind *kind;
    const char *at;
    gp_image_list list;
    gp_store *store;

    if (source_recognise(&kind, &at, path, source, NULL) != GP_OK)
        return;
    if (kind->open == gp_store_open_digits && gp_digits_are_cached(at) &&
        gp_store_open_with(&store, at, role, &options, NULL) == GP_OK)
        gp_store_close(store);
    if (kind->open != gp_store_open_folder)
        return;
    gp_folder_list(&list, at, role, &options, NULL);
    gp_image_list_deinit(&list);
}

gp_status gp_source_absolute(char *out, size_t bytes, const char *source, gp_error *err)
{
    char directory[PATH_MAX];
    gp_s3_source bucket;

    if (gp_s3_is(source)) { /* resolve options here: workers may have another environment */
        gp_status status = gp_s3_source_parse(&bucket, source, err);

        if (status == GP_OK)
            status = gp_s3_source_complete(&bucket, err);
        return status == GP_OK ? gp_s3_source_format(&bucket, false, out, bytes, err) : status;
    }
    if (kind_at(PLACE_NAME, source) != NULL || source[0] == '/' ||
        (strchr(source, '/') == NULL && access(source, F_OK) != 0)) {
        if ((size_t)snprintf(out, bytes, "%s", source) >= bytes)
            return gp_fail(err, GP_ELIMIT, "the data source has more than %zu bytes", bytes - 1);
        return GP_OK;
    }
    if (getcwd(directory, sizeof(directory)) == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot read the current directory");
    if ((size_t)snprintf(out, bytes, "%s/%s", directory, source) >= bytes)
        return gp_fail(err, GP_ELIMIT, "the path of the data source has more than %zu bytes", bytes - 1);
    return GP_OK;
}
