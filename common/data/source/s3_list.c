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
#include "common/data/store/class_match.h"
#include "common/data/format/csv.h"
#include "common/data/source/image_store.h"
#include "common/data/source/s3_listing.h"
#include "common/data/source/s3_npy.h"
#include "common/data/source/s3_tar.h"

enum { CSV_BYTES_MAX = 1 << 30, CLASS_BYTES_MAX = 256 };

/* ---- class folders ---- */

static const char *const train_names[] = { "train", NULL };
static const char *const test_names[] = { "test", "val", "validation", "valid", NULL };
static const char *const validation_names[] = { "val", "validation", "valid", "test", NULL };

/* Return the part of a name below the folder; NULL: the name is elsewhere. */
static const char *below(const char *name, const char *folder)
{
    size_t length = strlen(folder);

    return strncmp(name, folder, length) == 0 && name[length] == '/' ? name + length + 1 : NULL;
}

static const char *part_of(const char *name, const char *const *parts)
{
    for (; *parts != NULL; parts++)
        if (below(name, *parts) != NULL)
            return *parts;
    return NULL;
}

/* Return whether all folders have part names and contain folders. */
static bool is_divided(const s3_listing *listing)
{
    bool folders = false;

    for (uint32_t i = 0; i < listing->count; i++) {
        const char *name = s3_listing_name(listing, i), *part;

        if (strchr(name, '/') == NULL)
            continue;
        part = part_of(name, train_names);
        part = part != NULL ? part : part_of(name, test_names);
        if (part == NULL)
            return false;
        folders |= strchr(below(name, part), '/') != NULL;
    }
    return folders;
}

static const char *part_find(const s3_listing *listing, const char *const *parts)
{
    for (; *parts != NULL; parts++)
        for (uint32_t i = 0; i < listing->count; i++)
            if (below(s3_listing_name(listing, i), *parts) != NULL)
                return *parts;
    return NULL;
}

/* Choose the part for a role, *ours, and the part that defines the classes, *names. "": there are
 * no parts. */
static gp_status parts_decide(const s3_listing *listing, gp_data_role role, const char **ours,
                              const char **names, gp_error *err)
{
    const char *train, *test;

    *ours = *names = "";
    if (!is_divided(listing))
        return role != GP_DATA_TEST ? GP_OK
                                    : gp_fail(err, GP_ENOENT,
                                              "%s has no test images: there are no train/ and test/ (or "
                                              "val/) in it; `gradpool data "
                                              "split` makes two parts of it",
                                              listing->bare);
    train = part_find(listing, train_names);
    test = part_find(listing, role == GP_DATA_TEST ? validation_names : test_names);
    *ours = role == GP_DATA_TRAIN || (role == GP_DATA_GIVEN && test == NULL) ? train : test;
    if (*ours == NULL)
        return gp_fail(err, GP_ENOENT, "%s has no %s images: there is no %s/ in it", listing->bare,
                       role == GP_DATA_TRAIN ? "training" : "test", role == GP_DATA_TRAIN ? "train" : "test");
    *names = train != NULL ? train : *ours;
    return GP_OK;
}

/* Get the class folder that contains a name, and the file name. Return false if the name is not in
 * a class folder of this part. */
static bool class_of(const char *name, const char *part, char class[CLASS_BYTES_MAX], const char **file)
{
    const char *from = part[0] == '\0' ? name : below(name, part),
               *slash = from == NULL ? NULL : strchr(from, '/');

    if (slash == NULL || slash - from >= CLASS_BYTES_MAX)
        return false;
    memcpy(class, from, (size_t)(slash - from));
    class[slash - from] = '\0';
    *file = strrchr(name, '/') + 1;
    return true;
}

static gp_status classes_add(gp_image_list *list, const s3_listing *listing, const char *part, gp_error *err)
{
    char class[CLASS_BYTES_MAX], last[CLASS_BYTES_MAX] = "";
    const char *file;
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < listing->count && status == GP_OK; i++)
        if (class_of(s3_listing_name(listing, i), part, class, &file) && strcmp(class, last) != 0) {
            status = gp_image_list_add_class(list, class, err);
            strcpy(last, class);
        }
    if (status == GP_OK && list->class_count == 0)
        return gp_fail(err, GP_ENOENT,
                       "%s has no class folders; images are looked for as %s/CLASS/NAME.jpg or .png",
                       listing->bare, listing->bare);
    return status;
}

/* Check that every class has images. Called only for the part that defines the classes. */
static gp_status classes_check(gp_image_list *list, const s3_listing *listing, const uint32_t *counts,
                               const gp_store_options *options, gp_error *err)
{
    gp_error said;

    for (uint32_t i = 0; i < list->class_count; i++) {
        if (counts[i] > 0)
            continue;
        if (options->on_error != GP_BAD_SKIP)
            return gp_fail(
                err, GP_ECORRUPT,
                "class %s has no images: there is no .jpg or .png below it in %s; fill it or remove it",
                gp_image_list_class(list, i), listing->bare);
        gp_fail(&said, GP_ECORRUPT, "class %s has no images in %s", gp_image_list_class(list, i),
                listing->bare);
        gp_image_list_leave_out(list, said.message);
    }
    return GP_OK;
}

/* Add the images of a part to the list, in order. */
static gp_status images_add(gp_image_list *list, s3_listing *listing, const char *part, uint32_t *counts,
                            gp_error *err)
{
    char class[CLASS_BYTES_MAX], last[CLASS_BYTES_MAX] = "";
    int32_t label = -1;
    const char *file;
    uint32_t place;
    gp_status status = gp_image_list_add_place(list, listing->bare, &place, err);

    for (uint32_t i = 0; i < listing->count && status == GP_OK; i++) {
        const char *name = s3_listing_name(listing, i);

        if (!class_of(name, part, class, &file)) {
            list->others += part[0] == '\0' || below(name, part) != NULL;
            continue;
        }
        if (!gp_image_list_wants(file)) {
            list->others++;
            continue;
        }
        if (strcmp(class, last) != 0) {
            label = gp_image_list_find_class(list, class);
            strcpy(last, class);
        }
        if (label < 0)
            return gp_fail(err, GP_ECORRUPT, "%s/%s: there is no class of that name in the training images",
                           listing->bare, class);
        counts[label]++;
        status = gp_image_list_add(list, place, name, label, err);
        if (status == GP_OK)
            status =
                gp_objects_add(listing->objects, listing->entries[i].bytes, listing->entries[i].tag, err);
    }
    if (status == GP_OK && list->count == 0)
        return gp_fail(err, GP_ENOENT, "there is no .jpg or .png in the class folders of %s", listing->bare);
    return status;
}

static gp_status folder_list(gp_image_list *list, s3_listing *listing, gp_data_role role,
                             const gp_store_options *options, gp_error *err)
{
    const char *ours, *names;
    uint32_t *counts = NULL;
    gp_status status;

    status = parts_decide(listing, role, &ours, &names, err);
    if (status == GP_OK)
        status = classes_add(list, listing, names, err);
    if (status != GP_OK)
        return status;
    counts = gp_calloc(list->class_count, sizeof(*counts));
    status = counts == NULL ? gp_fail(err, GP_ENOMEM, "no memory for %u classes", list->class_count)
                            : images_add(list, listing, ours, counts, err);
    if (status == GP_OK && strcmp(ours, names) == 0)
        status = classes_check(list, listing, counts, options, err);
    gp_free(counts);
    return status;
}

/* ---- images with label images, or without labels ---- */

static bool pixels_has(void *context, const char *folder)
{
    const s3_listing *listing = context;

    for (uint32_t i = 0; i < listing->count; i++)
        if (below(s3_listing_name(listing, i), folder) != NULL)
            return true;
    return false;
}

/* List the images below a folder; "": all images. */
static gp_status pixels_list(void *context, gp_image_list *list, const char *folder,
                             const gp_store_options *options, gp_error *err)
{
    const s3_listing *listing = context;
    char path[GP_S3_SOURCE_BYTES_MAX + 80];
    uint32_t place;

    (void)options;
    gp_image_list_init(list);
    snprintf(path, sizeof(path), "%s%s%s", listing->bare, folder[0] == '\0' ? "" : "/", folder);
    gp_status status = gp_image_list_add_place(list, path, &place, err);

    for (uint32_t i = 0; i < listing->count && status == GP_OK; i++) {
        const char *name = s3_listing_name(listing, i);
        const char *rest = folder[0] == '\0' ? name : below(name, folder);

        if (rest != NULL && gp_image_list_wants(rest))
            status = gp_image_list_add(list, place, rest, -1, err);
        else
            list->others += rest != NULL;
    }
    return status;
}

/* Read a CSV file below the prefix; see gp_pixels_place. */
static gp_status pixels_read(void *context, gp_csv *csv, const char *file, const char *path, gp_error *err)
{
    const s3_listing *listing = context;
    char key[GP_S3_KEY_BYTES_MAX + 32];
    gp_s3_range range = { .key = key, .bytes = GP_S3_REST };
    gp_buffer bytes;
    size_t count;
    uint32_t at = 0;

    while (at < listing->count && strcmp(s3_listing_name(listing, at), file) != 0)
        at++;
    if (at == listing->count)
        return GP_ENOENT;
    snprintf(key, sizeof(key), "%s%s%s", listing->source.key, listing->skip == 0 ? "" : "/", file);
    gp_buffer_init(&bytes, CSV_BYTES_MAX);
    gp_status status = gp_s3_read(gp_objects_s3(listing->objects), &range, &bytes, err);

    if (status == GP_OK)
        status = gp_buffer_append(&bytes, "", 1, err); /* terminating NUL */
    if (status == GP_OK) {
        char *text = (char *)gp_buffer_take(&bytes, &count);

        gp_csv_init(csv, path, text, count - 1);
    }
    gp_buffer_deinit(&bytes);
    return status;
}

/* Return the listing entry for an image in a list made from that listing. */
static const s3_entry *entry_of(const s3_listing *listing, const gp_image_list *list, uint32_t index)
{
    const size_t root = strlen(listing->bare);
    const char *place = gp_image_list_place(list, list->entries[index].place) + root;
    char name[GP_IMAGE_NAME_BYTES_MAX];

    snprintf(name, sizeof(name), "%s%s%s", place[0] == '/' ? place + 1 : place, place[0] == '/' ? "/" : "",
             gp_image_list_name(list, index));
    return s3_listing_find(listing, name);
}

static gp_status pixels_finish(void *context, gp_image_list *list, gp_error *err)
{
    const s3_listing *listing = context;
    gp_status status = gp_objects_open(&list->objects, &listing->source, err);

    for (uint32_t i = 0; i < list->count && status == GP_OK; i++) {
        const s3_entry *entry = entry_of(listing, list, i);

        status = gp_objects_add(list->objects, entry == NULL ? 0 : entry->bytes,
                                entry == NULL ? 0 : entry->tag, err);
    }
    return status;
}

static gp_pixels_place pixels_place(s3_listing *listing)
{
    return (gp_pixels_place){ .root = listing->bare,
                              .context = listing,
                              .has = pixels_has,
                              .list = pixels_list,
                              .read = pixels_read,
                              .finish = pixels_finish };
}

gp_status gp_s3_pixels_classes(gp_pixel_labels *labels, gp_image_list *list, const char *text, gp_error *err)
{
    s3_listing listing = { .objects = NULL };
    const gp_pixels_place place = pixels_place(&listing);
    gp_s3_source source;
    gp_status status = gp_s3_source_parse(&source, text, err);

    if (status == GP_OK)
        status = gp_s3_source_complete(&source, err);
    if (status == GP_OK)
        status = s3_listing_open(&listing, &source, err);
    if (status == GP_OK)
        status = s3_listing_read(&listing, err);
    if (status == GP_OK)
        status = gp_pixels_classes_at(labels, list, &place, err);
    s3_listing_close(&listing);
    return status;
}

/* Return whether the prefix has images and no folders. */
static bool is_plain(const s3_listing *listing)
{
    bool images = false;

    for (uint32_t i = 0; i < listing->count; i++) {
        if (strchr(s3_listing_name(listing, i), '/') != NULL)
            return false;
        images |= gp_image_list_wants(s3_listing_name(listing, i));
    }
    return images;
}

static gp_status plain_list(gp_image_list *list, s3_listing *listing, gp_data_role role,
                            const gp_store_options *options, gp_error *err)
{
    gp_status status = gp_plain_images_role(listing->bare, role, err);

    gp_image_list_deinit(list); /* start over */
    gp_image_list_init(list);
    if (status == GP_OK)
        status = pixels_list(listing, list, "", options, err);
    if (status == GP_OK)
        /* a store needs at least one class */
        status = gp_image_list_add_class(list, GP_CLASS_NONE, err);
    return status == GP_OK ? pixels_finish(listing, list, err) : status;
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
        gp_s3_range range = { .key = listing->source.key, .bytes = 1 };
        gp_buffer byte;

        gp_buffer_init(&byte, 16);
        status = gp_s3_read(gp_objects_s3(listing->objects), &range, &byte, err);
        gp_buffer_deinit(&byte);
        return status == GP_OK ? gp_s3_tar_take(listing->objects, index, listing->source.bucket, range.key,
                                                range.object_bytes, range.tag, err)
                               : status;
    }
    for (uint32_t i = 0; i < listing->count && status == GP_OK; i++) {
        if (!is_archive(s3_listing_name(listing, i)))
            continue;
        if ((size_t)snprintf(key, sizeof(key), "%s%s%s", listing->source.key, listing->skip == 0 ? "" : "/",
                             s3_listing_name(listing, i)) >= sizeof(key))
            return gp_fail(err, GP_ELIMIT, "a key below %s is too long", listing->bare);
        status = gp_s3_tar_take(listing->objects, index, listing->source.bucket, key,
                                listing->entries[i].bytes, listing->entries[i].tag, err);
    }
    return status;
}

/* ---- CSV files ---- */

/* List the images in a CSV file in S3. Paths are relative to the file's directory. */
static gp_status csv_list(gp_image_list *list, s3_listing *listing, gp_data_role role, gp_error *err)
{
    gp_s3_range range = { .key = listing->source.key, .bytes = GP_S3_REST };
    char place[GP_S3_SOURCE_BYTES_MAX], *text;
    gp_buffer bytes;
    size_t count;
    gp_status status;

    if (role == GP_DATA_TEST)
        return gp_fail(err, GP_ENOENT, "%s has no test part; give one as --validation-data FILE.csv",
                       listing->bare);
    gp_buffer_init(&bytes, CSV_BYTES_MAX);
    status = gp_s3_read(gp_objects_s3(listing->objects), &range, &bytes, err);
    if (status == GP_OK)
        status = gp_buffer_reserve(&bytes, 1, err);
    if (status == GP_OK) {
        snprintf(place, sizeof(place), "%s", listing->bare);
        *strrchr(place, '/') = '\0';
        text = (char *)gp_buffer_take(&bytes, &count);
        status = gp_csv_list_text(list, listing->bare, place, text, count, err);
    }
    gp_buffer_deinit(&bytes);
    for (uint32_t i = 0; i < list->count && status == GP_OK; i++) {
        const char *name = gp_image_list_name(list, i);

        if (name[0] == '/' || gp_s3_is(name))
            status = gp_fail(err, GP_EINVAL, "%s: the path %.80s is not relative to it", listing->bare, name);
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
            status = gp_fail(err, GP_EUNSUPPORTED, "%s has lines of two buckets, %s and %s; one is possible",
                             source, first.bucket, next.bucket);
    }
    if (status != GP_OK || there == 0)
        return status;
    if (there != list->count)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "%s has %u lines of objects in S3 and %u of files; one kind is possible", source,
                       there, list->count - there);
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

static bool has_archives(const s3_listing *listing)
{
    for (uint32_t i = 0; i < listing->count; i++)
        if (is_archive(s3_listing_name(listing, i)))
            return true;
    return false;
}

static bool npy_exists(void *context, const char *path)
{
    const s3_listing *listing = context;
    size_t skip = strlen(listing->bare) + 1;

    for (uint32_t i = 0; i < listing->count; i++)
        if (strcmp(s3_listing_name(listing, i), path + skip) == 0)
            return true;
    return false;
}

/* Determine the kind of source and list the images, except for images with label images. *kind is
 * NULL for arrays. */
static gp_status list_make(gp_image_list *list, s3_listing *listing, gp_data_role role,
                           const gp_store_options *options, const char **kind, gp_error *err)
{
    const char *key = listing->source.key;
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
    if (listing->count == 0 || has_archives(listing)) {
        *kind = "tar";
        return gp_tar_list_with(list, listing->bare, role, archives_fill, listing, err);
    }
    const gp_pixels_place place = pixels_place(listing);

    if (gp_pixels_is_at(&place)) {
        *kind = "pixels";
        return GP_OK;
    }
    if (is_plain(listing)) {
        *kind = "images";
        return plain_list(list, listing, role, options, err);
    }
    return folder_list(list, listing, role, options, err);
}

/* Open a store over a list. Ownership of list and objects passes to the store. */
static gp_status list_open(gp_store **out, s3_listing *listing, gp_image_list *list, const char *kind,
                           const gp_store_options *options, gp_error *err)
{
    gp_image_list_trim(list);
    if (list->objects == NULL) {
        list->objects = listing->objects;
        listing->objects = NULL;
    }
    gp_status status = gp_image_store_open(out, kind, listing->bare, list, NULL, options, err);

    gp_image_list_init(list); /* the store owns it now */
    return status;
}

/* Open a source in S3. Its kind depends on the ending of the key, or else on the objects below
 * it. */
gp_status gp_s3_store_open(gp_store **out, const char *text, gp_data_role role,
                           const gp_store_options *options, gp_error *err)
{
    s3_listing listing = { .objects = NULL };
    gp_s3_source source;
    gp_image_list list;
    const char *kind = NULL;
    gp_status status;

    gp_image_list_init(&list);
    status = gp_s3_source_parse(&source, text, err);
    if (status == GP_OK)
        status = gp_s3_source_complete(&source, err);
    if (status == GP_OK)
        status = s3_listing_open(&listing, &source, err);
    listing.progress = options->progress;
    if (status == GP_OK)
        status = list_make(&list, &listing, role, options, &kind, err);
    if (status == GP_OK && kind == NULL) {
        status = gp_s3_npy_open(out, listing.bare, listing.objects, listing.count > 0 ? npy_exists : NULL,
                                &listing, role, err);
    } else if (status == GP_OK && strcmp(kind, "pixels") == 0) {
        const gp_pixels_place place = pixels_place(&listing);

        status = gp_pixels_open_at(out, &place, role, options, err);
    } else if (status == GP_OK) {
        status = list_open(out, &listing, &list, kind, options, err);
    }
    gp_image_list_deinit(&list);
    s3_listing_close(&listing);
    return status;
}
