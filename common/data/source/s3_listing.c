/* List a prefix in S3, and sort the names like those in a directory. */
#include "common/data/source/s3_listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/source/image_list.h"

/* Return whether a component of a name is empty or starts with a dot. */
static bool is_hidden(const char *name)
{
    for (;;) {
        const char *slash = strchr(name, '/');

        if (*name == '.' || *name == '/' || *name == '\0')
            return true;
        if (slash == NULL)
            return false;
        name = slash + 1;
    }
}

enum { REPORT_EACH = 100 };

/* Add an object to the listing, unless the name is hidden. */
static gp_status entry_add(void *context, const gp_s3_object *object, gp_error *err)
{
    s3_listing *listing = context;
    const char *name = object->key + listing->skip;
    size_t at = listing->text.bytes;
    gp_status status;

    if (is_hidden(name))
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

gp_status s3_listing_open(s3_listing *listing, const gp_s3_source *source, gp_error *err)
{
    gp_status status;

    *listing = (s3_listing){ .source = *source };
    gp_buffer_init(&listing->text, GP_IMAGE_NAMES_BYTES_MAX);
    listing->skip = source->key[0] == '\0' ? 0 : strlen(source->key) + 1;
    status = gp_s3_source_format(source, true, listing->bare, sizeof(listing->bare), err);
    return status == GP_OK ? gp_objects_open(&listing->objects, source, err) : status;
}

void s3_listing_close(s3_listing *listing)
{
    gp_objects_close(listing->objects);
    gp_buffer_deinit(&listing->text);
    gp_free(listing->entries);
}

gp_status s3_listing_read(s3_listing *listing, gp_error *err)
{
    char prefix[GP_S3_KEY_BYTES_MAX + 2];
    gp_status status;

    snprintf(prefix, sizeof(prefix), "%s%s", listing->source.key, listing->skip == 0 ? "" : "/");
    status = gp_s3_list(gp_objects_s3(listing->objects), prefix, entry_add, listing, err);
    if (status == GP_OK && listing->count == 0)
        return gp_fail(
            err, GP_ENOENT,
            "there are no objects below %s/; keys are looked for as %s/CLASS/NAME.jpg (an object by itself "
            "ends in .csv, .tar or .npy)",
            listing->bare, listing->bare);
    if (status == GP_OK)
        qsort_r(listing->entries, listing->count, sizeof(*listing->entries), entry_compare,
                listing->text.data);
    return status;
}

const s3_entry *s3_listing_find(const s3_listing *listing, const char *name)
{
    uint32_t low = 0, high = listing->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = names_compare(name, s3_listing_name(listing, middle));

        if (order == 0)
            return &listing->entries[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
