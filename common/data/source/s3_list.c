/* Open a source in S3 with the same result as a directory that has the same files.
 *
 *   s3://BUCKET/X.csv, X.tar, X.npy  that object
 *   s3://BUCKET/PREFIX               all objects below PREFIX/. In order of preference: x.npy and
 *                                    similar, .tar archives, images with label images, images
 *                                    only, class folders
 *
 * A prefix is listed once, completely. S3 returns keys in byte order, in which "a-b/c" precedes
 * "a/c". The listing is sorted in the order of folder.c, so that the same data gives the same
 * batches from any location. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/data/store/class_match.h"
#include "common/data/format/csv.h"
#include "common/data/source/image_store.h"
#include "common/data/source/objects.h"

enum { CSV_BYTES_MAX = 1 << 30, REPORT_EACH = 100 };

/* An object in the listing. */
typedef struct s3_entry {
    uint64_t name; /* offset in `text` of the name below the prefix */
    uint64_t bytes, tag;
} s3_entry;

/* All objects below a prefix, except those with hidden components in their names. */
typedef struct s3_listing {
    gp_s3_source source;
    gp_objects *objects;
    char bare[GP_S3_SOURCE_BYTES_MAX]; /* s3://BUCKET/PREFIX */
    size_t skip;                       /* length of the prefix with slash */
    gp_buffer text;
    s3_entry *entries;
    uint32_t count;
    const gp_progress *progress; /* receives progress from s3_listing_read(); NULL: no reports */
} s3_listing;

/* Return a name below the prefix, such as "CLASS/NAME.jpg". */
static const char *s3_listing_name(const s3_listing *listing, uint32_t index)
{
    return (const char *)listing->text.data + listing->entries[index].name;
}

/* ---- listing ---- */

/* Add an object to the listing, unless the name is hidden. */
static gp_status entry_add(void *context, const gp_s3_object *object, gp_error *err)
{
    s3_listing *listing = context;
    const char *name = object->key + listing->skip;
    size_t at = listing->text.bytes;
    gp_status status;

    /* a component is empty or starts with a dot */
    if (name[0] == '\0' || name[0] == '.' || name[0] == '/' || name[strlen(name) - 1] == '/' ||
        strstr(name, "/.") != NULL || strstr(name, "//") != NULL)
        return GP_OK;
    if (listing->count == GP_STORE_SAMPLES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has more than %d objects", listing->bare, GP_STORE_SAMPLES_MAX);
    s3_entry *grown = gp_array_grow(listing->entries, listing->count, sizeof(*grown));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a listing of %u objects", listing->count + 1);
    listing->entries = grown;
    status = gp_buffer_append(&listing->text, name, strlen(name) + 1, err);
    if (status == GP_OK)
        listing->entries[listing->count++] =
            (s3_entry){ .name = at, .bytes = object->bytes, .tag = object->tag };
    if (listing->count % REPORT_EACH == 0)
        gp_progress_report(listing->progress, "listing", "objects", listing->count, 0);
    return status;
}

/* Compare names by components: in a folder, files precede sub-folders, each in byte order. */
static int names_compare(const char *a, const char *b)
{
    for (;;) {
        size_t bytes_a = strcspn(a, "/"), bytes_b = strcspn(b, "/");
        bool file_a = a[bytes_a] == '\0', file_b = b[bytes_b] == '\0';
        int order = memcmp(a, b, bytes_a < bytes_b ? bytes_a : bytes_b);

        if (file_a != file_b)
            return file_a ? -1 : 1;
        if (order != 0 || bytes_a != bytes_b)
            return order != 0 ? order : bytes_a < bytes_b ? -1 : 1;
        if (file_a)
            return 0;
        a += bytes_a + 1;
        b += bytes_b + 1;
    }
}

static int entry_compare(const void *left, const void *right, void *text)
{
    return names_compare((const char *)text + ((const s3_entry *)left)->name,
                         (const char *)text + ((const s3_entry *)right)->name);
}

/* Initialize an empty listing and prepare access to the bucket. Release with s3_listing_close(),
 * even after a failure. */
static gp_status s3_listing_open(s3_listing *listing, const char *text, gp_error *err)
{
    gp_s3_source *source = &listing->source;
    gp_status status;

    *listing = (s3_listing){ .skip = 0 };
    gp_buffer_init(&listing->text, GP_IMAGE_NAMES_BYTES_MAX);
    status = gp_s3_source_parse(source, text, err);
    listing->skip = source->key[0] == '\0' ? 0 : strlen(source->key) + 1;
    if (status == GP_OK)
        status = gp_s3_source_complete(source, err);
    if (status == GP_OK)
        status = gp_s3_source_format(source, true, listing->bare, sizeof(listing->bare), err);
    return status == GP_OK ? gp_objects_open(&listing->objects, source, err) : status;
}

/* Accepts an all-zero struct. */
static void s3_listing_close(s3_listing *listing)
{
    gp_objects_close(listing->objects);
    gp_buffer_deinit(&listing->text);
    gp_free(listing->entries);
}

/* Request the listing from S3. GP_ENOENT: there are no objects below the prefix. */
static gp_status s3_listing_read(s3_listing *listing, gp_error *err)
{
    char prefix[GP_S3_KEY_BYTES_MAX + 2];
    gp_status status;

    snprintf(prefix, sizeof(prefix), "%s%s", listing->source.key, listing->skip == 0 ? "" : "/");
    status = gp_s3_list(gp_objects_s3(listing->objects), prefix, entry_add, listing, err);
    if (status == GP_OK && listing->count == 0)
        return gp_fail(err, GP_ENOENT,
                       "no objects in %s/; keys must be %s/CLASS/NAME.jpg (a single object must end in .csv, "
                       ".tar or .npy)",
                       listing->bare, listing->bare);
    if (status == GP_OK)
        qsort_r(listing->entries, listing->count, sizeof(*listing->entries), entry_compare,
                listing->text.data);
    return status;
}

/* Return the first entry that does not precede a key, or with `behind` the first one behind it. */
static uint32_t listing_bound(const s3_listing *listing, const char *key,
                              int (*compare)(const char *name, const char *key), bool behind)
{
    uint32_t low = 0, high = listing->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (compare(s3_listing_name(listing, middle), key) < behind)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Find an entry by name; NULL: not found. */
static const s3_entry *s3_listing_find(const s3_listing *listing, const char *name)
{
    const uint32_t at = listing_bound(listing, name, names_compare, false);

    return at < listing->count && strcmp(s3_listing_name(listing, at), name) == 0 ? &listing->entries[at]
                                                                                  : NULL;
}

/* ---- the listing as a tree ---- */

/* Compare a name with a folder: 0 below it, < 0 before it in the order of the listing. */
static int folder_compare(const char *name, const char *folder)
{
    for (;;) {
        const size_t bytes = strcspn(name, "/"), wanted = strcspn(folder, "/");

        if (name[bytes] == '\0') /* files precede folders */
            return -1;
        const int order = memcmp(name, folder, bytes < wanted ? bytes : wanted);

        if (order != 0 || bytes != wanted)
            return order != 0 ? order : bytes < wanted ? -1 : 1;
        if (folder[wanted] == '\0')
            return 0;
        name += bytes + 1;
        folder += wanted + 1;
    }
}

/* Return the first entry that is below a folder, or with `behind` the first one behind it. */
static uint32_t folder_bound(const s3_listing *listing, const char *folder, bool behind)
{
    if (folder[0] == '\0')
        return behind ? listing->count : 0;
    return listing_bound(listing, folder, folder_compare, behind);
}

/* Return the part of an entry's name below the folder. */
static const char *below(const s3_listing *listing, uint32_t index, const char *folder)
{
    const size_t length = strlen(folder);

    return s3_listing_name(listing, index) + length + (length > 0);
}

static bool tree_has(void *context, const char *folder, bool folders)
{
    const s3_listing *listing = context;
    const uint32_t first = folder_bound(listing, folder, false), end = folder_bound(listing, folder, true);

    /* files precede folders, so the last entry tells */
    return first < end && (!folders || strchr(below(listing, end - 1, folder), '/') != NULL);
}

static gp_status tree_folders(void *context, gp_image_list *out, const char *folder, gp_image_list *stamps,
                              gp_error *err)
{
    const s3_listing *listing = context;
    const uint32_t end = folder_bound(listing, folder, true);
    char class[GP_S3_KEY_BYTES_MAX], last[GP_S3_KEY_BYTES_MAX] = "";
    gp_status status = GP_OK;

    (void)stamps;
    for (uint32_t i = folder_bound(listing, folder, false); i < end && status == GP_OK; i++) {
        const char *name = below(listing, i, folder), *slash = strchr(name, '/');

        out->others += slash == NULL;
        snprintf(class, sizeof(class), "%.*s", slash == NULL ? 0 : (int)(slash - name), name);
        if (slash == NULL || strcmp(class, last) == 0)
            continue;
        status = gp_image_list_add_class(out, class, err);
        strcpy(last, class);
    }
    return status;
}

/* Add the images below a folder to a list. */
static gp_status tree_list(void *context, gp_image_list *list, const char *folder, int32_t label,
                           const gp_store_options *options, gp_error *err)
{
    const s3_listing *listing = context;
    const uint32_t end = folder_bound(listing, folder, true);
    char path[GP_S3_SOURCE_BYTES_MAX + GP_S3_KEY_BYTES_MAX];
    uint32_t place;

    (void)options;
    snprintf(path, sizeof(path), "%s%s%s", listing->bare, folder[0] == '\0' ? "" : "/", folder);
    gp_status status = gp_image_list_add_place(list, path, &place, err);

    for (uint32_t i = folder_bound(listing, folder, false); i < end && status == GP_OK; i++)
        if (gp_image_list_wants(below(listing, i, folder)))
            status = gp_image_list_add(list, place, below(listing, i, folder), label, err);
        else
            list->others++;
    return status;
}

/* Read a whole object as text. The caller frees *text. */
static gp_status text_read(const s3_listing *listing, const char *key, char **text, size_t *bytes,
                           gp_error *err)
{
    gp_s3_range range = { .key = key, .bytes = GP_S3_REST };
    gp_buffer buffer;

    gp_buffer_init(&buffer, CSV_BYTES_MAX);
    gp_status status = gp_s3_read(gp_objects_s3(listing->objects), &range, &buffer, err);

    if (status == GP_OK)
        status = gp_buffer_reserve(&buffer, 1, err); /* an empty object has no memory, and no NUL */
    if (status == GP_OK)
        *text = (char *)gp_buffer_take(&buffer, bytes);
    gp_buffer_deinit(&buffer);
    return status;
}

/* Read a CSV file below the prefix; see gp_tree. */
static gp_status tree_read(void *context, gp_csv *csv, const char *file, const char *path, gp_error *err)
{
    const s3_listing *listing = context;
    char key[GP_S3_KEY_BYTES_MAX + 32], *text;
    size_t bytes;

    if (s3_listing_find(listing, file) == NULL)
        return GP_ENOENT;
    snprintf(key, sizeof(key), "%s%s%s", listing->source.key, listing->skip == 0 ? "" : "/", file);
    gp_status status = text_read(listing, key, &text, &bytes, err);

    if (status == GP_OK)
        gp_csv_init(csv, path, text, bytes);
    return status;
}

static gp_status tree_finish(void *context, gp_image_list *list, gp_error *err)
{
    const s3_listing *listing = context;
    gp_status status = gp_objects_open(&list->objects, &listing->source, err);
    char name[GP_IMAGE_NAME_BYTES_MAX];

    for (uint32_t i = 0; i < list->count && status == GP_OK; i++) {
        const char *place = gp_image_list_place(list, list->entries[i].place) + strlen(listing->bare);

        place += place[0] == '/';
        snprintf(name, sizeof(name), "%s%s%s", place, place[0] == '\0' ? "" : "/",
                 gp_image_list_name(list, i));
        const s3_entry *entry = s3_listing_find(listing, name);

        status = gp_objects_add(list->objects, entry == NULL ? 0 : entry->bytes,
                                entry == NULL ? 0 : entry->tag, err);
    }
    return status;
}

static gp_tree tree_of(s3_listing *listing)
{
    return (gp_tree){ .root = listing->bare,
                      .context = listing,
                      .has = tree_has,
                      .folders = tree_folders,
                      .list = tree_list,
                      .read = tree_read,
                      .finish = tree_finish };
}

gp_status gp_s3_pixels_classes(gp_pixel_labels *labels, gp_image_list *list, const char *text, gp_error *err)
{
    s3_listing listing;
    const gp_tree place = tree_of(&listing);
    gp_status status = s3_listing_open(&listing, text, err);

    if (status == GP_OK)
        status = s3_listing_read(&listing, err);
    if (status == GP_OK)
        status = gp_pixels_classes_at(labels, list, &place, err);
    s3_listing_close(&listing);
    return status;
}

/* ---- archives ---- */

static bool is_archive(const char *name)
{
    const char *dot = strrchr(name, '.');

    return strchr(name, '/') == NULL && dot != NULL && strcasecmp(dot, ".tar") == 0;
}

/* Add the archive that the source names, or all archives in the listing. */
static gp_status archives_fill(void *context, gp_tar_index *index, gp_error *err)
{
    s3_listing *listing = context;
    char key[GP_S3_KEY_BYTES_MAX + 2];
    gp_status status = GP_OK;

    gp_objects_of_places(listing->objects);
    if (listing->count == 0) {
        gp_s3_range range;

        status = gp_objects_stat(listing->objects, listing->source.key, &range, err);
        return status == GP_OK ? gp_s3_tar_take(listing->objects, index, listing->source.bucket, range.key,
                                                range.object_bytes, range.tag, err)
                               : status;
    }
    for (uint32_t i = 0; i < listing->count && status == GP_OK; i++) {
        if (!is_archive(s3_listing_name(listing, i)))
            continue;
        if ((size_t)snprintf(key, sizeof(key), "%s%s%s", listing->source.key, listing->skip == 0 ? "" : "/",
                             s3_listing_name(listing, i)) >= sizeof(key))
            return gp_fail(err, GP_ELIMIT, "a key in %s is too long", listing->bare);
        status = gp_s3_tar_take(listing->objects, index, listing->source.bucket, key,
                                listing->entries[i].bytes, listing->entries[i].tag, err);
    }
    return status;
}

/* ---- CSV files ---- */

/* List the images in a CSV file in S3. Paths are relative to the file's directory. */
static gp_status csv_list(gp_image_list *list, s3_listing *listing, gp_data_role role, gp_error *err)
{
    char place[GP_S3_SOURCE_BYTES_MAX], *text;
    size_t bytes;
    gp_status status;

    if (role == GP_DATA_TEST)
        return gp_fail(err, GP_ENOENT, "%s has no test part; use --validation-data FILE.csv", listing->bare);
    status = text_read(listing, listing->source.key, &text, &bytes, err);
    if (status == GP_OK) {
        snprintf(place, sizeof(place), "%s", listing->bare);
        *strrchr(place, '/') = '\0';
        status = gp_csv_list_text(list, listing->bare, place, text, bytes, err);
    }
    for (uint32_t i = 0; i < list->count && status == GP_OK; i++) {
        const char *name = gp_image_list_name(list, i);

        if (name[0] == '/' || gp_s3_is(name))
            status = gp_fail(err, GP_EINVAL, "%s: the path %.80s is not relative", listing->bare, name);
        else
            status = gp_objects_add(listing->objects, 0, 0, err);
    }
    return status;
}

/* Remove the options from each name: `data split` writes them into every line. */
gp_status gp_s3_list_lines(gp_image_list *list, const char *source, gp_error *err)
{
    gp_s3_source first = { .bucket = "" }, next;
    uint32_t there = 0;
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < list->count && status == GP_OK; i++) {
        char *name = (char *)(uintptr_t)gp_image_list_name(list, i);
        size_t length = strlen(name) + 1;

        if (!gp_s3_is(name))
            continue;
        status = gp_s3_source_parse(&next, name, err);
        if (status == GP_OK)
            status = gp_s3_source_format(&next, true, name, length, err);
        next.key[0] = '\0';
        if (there++ == 0)
            first = next;
        if (status == GP_OK &&
            (strcmp(first.bucket, next.bucket) != 0 || strcmp(first.endpoint, next.endpoint) != 0))
            status =
                gp_fail(err, GP_EUNSUPPORTED, "%s has lines of two buckets, %s and %s; only one is supported",
                        source, first.bucket, next.bucket);
    }
    if (status != GP_OK || there == 0)
        return status;
    if (there != list->count)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "%s has %u lines with S3 objects and %u with files; only one kind is supported",
                       source, there, list->count - there);
    status = gp_objects_open(&list->objects, &first, err);
    for (uint32_t i = 0; i < list->count && status == GP_OK; i++)
        status = gp_objects_add(list->objects, 0, 0, err);
    return status;
}

/* ---- opening ---- */

static bool ends_with(const char *text, const char *end)
{
    return strlen(text) > strlen(end) && strcasecmp(text + strlen(text) - strlen(end), end) == 0;
}

static bool npy_exists(void *context, const char *path)
{
    const s3_listing *listing = context;

    return s3_listing_find(listing, path + strlen(listing->bare) + 1) != NULL;
}

/* Determine the kind of source and list the images, except for images with label images. *kind is
 * NULL for arrays. */
static gp_status list_make(gp_image_list *list, s3_listing *listing, gp_data_role role,
                           const gp_store_options *options, const char **kind, gp_error *err)
{
    const char *key = listing->source.key;
    uint32_t archives = 0, images = 0;
    gp_tar_index index;
    gp_status status = GP_OK;

    *kind = "folder";
    if (ends_with(key, ".csv")) {
        *kind = "csv";
        return csv_list(list, listing, role, err);
    }
    if (ends_with(key, ".npy")) {
        *kind = NULL;
        return GP_OK;
    }
    if (!ends_with(key, ".tar"))
        status = s3_listing_read(listing, err);
    if (status != GP_OK)
        return status;
    if (listing->count > 0 && gp_npy_is_listed(listing->bare, npy_exists, listing)) {
        *kind = NULL;
        return GP_OK;
    }
    for (uint32_t i = 0; i < listing->count; i++)
        archives += is_archive(s3_listing_name(listing, i));
    if (listing->count == 0 || archives > 0) {
        *kind = "tar";
        status = gp_tar_index_open(&index, listing->bare, NULL, archives_fill, listing, err);
        if (status == GP_OK && gp_tar_has_label_images(&index))
            status = gp_fail(err, GP_EUNSUPPORTED,
                             "%s has label images, which are not supported in archives in S3; extract the "
                             "archive, or copy it to a local file",
                             listing->bare);
        if (status == GP_OK)
            status = gp_tar_index_list(list, &index, listing->bare, role, err);
        gp_tar_index_close(&index);
        return status;
    }
    const gp_tree place = tree_of(listing);

    if (gp_pixels_is_at(&place)) {
        *kind = "pixels";
        return GP_OK;
    }
    for (uint32_t i = 0; i < listing->count; i++)
        images += gp_image_list_wants(s3_listing_name(listing, i));
    if (images > 0 && !tree_has(listing, "", true)) { /* images without labels */
        *kind = "images";
        status = gp_plain_images_role(listing->bare, role, err);
        if (status == GP_OK)
            status = tree_list(listing, list, "", -1, options, err);
        if (status == GP_OK) /* a store needs at least one class */
            status = gp_image_list_add_class(list, GP_CLASS_NONE, err);
        return status == GP_OK ? tree_finish(listing, list, err) : status;
    }
    status = gp_class_folders_list(list, &place, role, options, err);
    return status == GP_OK ? tree_finish(listing, list, err) : status;
}

/* Open a source in S3. Its kind depends on the ending of the key, or else on the objects below
 * it. */
gp_status gp_s3_store_open(gp_store **out, const char *text, gp_data_role role,
                           const gp_store_options *options, gp_error *err)
{
    s3_listing listing;
    gp_image_list list;
    const char *kind = NULL;
    gp_status status;

    gp_image_list_init(&list);
    status = s3_listing_open(&listing, text, err);
    listing.progress = options->progress;
    if (status == GP_OK)
        status = list_make(&list, &listing, role, options, &kind, err);
    if (status == GP_OK && kind == NULL) {
        status = gp_s3_npy_open(out, listing.bare, listing.objects, listing.count > 0 ? npy_exists : NULL,
                                &listing, role, err);
    } else if (status == GP_OK && strcmp(kind, "pixels") == 0) {
        const gp_tree place = tree_of(&listing);

        status = gp_pixels_open_at(out, &place, role, options, err);
    } else if (status == GP_OK) {
        gp_image_list_trim(&list);
        if (list.objects == NULL) {
            list.objects = listing.objects;
            listing.objects = NULL;
        }
        status = gp_image_store_open(out, kind, listing.bare, &list, NULL, options, status, err);
        gp_image_list_init(&list); /* the store owns it now */
    }
    gp_image_list_deinit(&list);
    s3_listing_close(&listing);
    return status;
}
