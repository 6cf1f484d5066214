/* Save and load image lists on disk. */
#include "common/data/source/image_index.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/hash.h"
#include "common/base/system/cached.h"

enum { SETTLED_SECONDS = 2, INDEXES_MAX = 1024 };

static const char index_word[] = "gpimg-3"; /* changes with the format */

/* Start of the contents; the arrays follow in the order of parts_of(). */
typedef struct index_header {
    uint64_t others, text_bytes;
    uint32_t count, place_count, class_count, stamp_count;
} index_header;

typedef struct index_part {
    void **data;
    size_t bytes;
} index_part;

enum { PARTS = 6 };

static void parts_of(index_part parts[PARTS], gp_image_list *list, const index_header *header)
{
    parts[0] = (index_part){ (void **)&list->entries, header->count * sizeof(*list->entries) };
    parts[1] = (index_part){ (void **)&list->labels, header->count * sizeof(*list->labels) };
    parts[2] = (index_part){ (void **)&list->places, header->place_count * sizeof(*list->places) };
    parts[3] = (index_part){ (void **)&list->classes, header->class_count * sizeof(*list->classes) };
    parts[4] = (index_part){ (void **)&list->stamps, header->stamp_count * sizeof(*list->stamps) };
    parts[5] = (index_part){ (void **)&list->text.data, header->text_bytes };
}

/* Build the path of the index file for a source and role, from the hash of both. */
static bool index_path(char path[PATH_MAX], const char *directory, gp_data_role role)
{
    char *real = realpath(directory, NULL), name[40];
    uint64_t hash = GP_HASH_BEGIN ^ (uint64_t)role;

    if (real == NULL)
        return false;
    hash = gp_hash_add(hash, real, strlen(real));
    free(real);
    snprintf(name, sizeof(name), ".index/%016llx", (unsigned long long)hash);
    return gp_cache_path(path, PATH_MAX, "data", name, NULL) == GP_OK;
}

/* Return whether every listed directory is unchanged. */
static bool stamps_hold(const gp_image_list *list)
{
    char path[2 * PATH_MAX];
    struct stat stat_;

    for (uint32_t i = 0; i < list->stamp_count; i++) {
        const gp_image_stamp *stamp = &list->stamps[i];

        snprintf(path, sizeof(path), "%s%s", list->root, (const char *)list->text.data + stamp->path);
        if (stat(path, &stat_) != 0 || stat_.st_ino != stamp->inode || stat_.st_dev != stamp->device ||
            stat_.st_mtim.tv_sec * 1000000000ll + stat_.st_mtim.tv_nsec != stamp->changed_ns)
            return false;
    }
    return list->stamp_count > 0;
}

/* Check that all offsets point into the text, and that the text ends with a NUL. */
static bool is_sound(const gp_image_list *list)
{
    uint64_t bytes = list->text.bytes;
    bool sound = bytes > 0 && list->text.data[bytes - 1] == '\0' && list->count <= GP_STORE_SAMPLES_MAX;

    for (uint32_t i = 0; i < list->count && sound; i++)
        sound = list->entries[i].name < bytes && list->entries[i].place < list->place_count &&
                list->labels[i] >= -1 && list->labels[i] < (int64_t)list->class_count;
    for (uint32_t i = 0; i < list->place_count && sound; i++)
        sound = list->places[i] < bytes;
    for (uint32_t i = 0; i < list->class_count && sound; i++)
        sound = list->classes[i] < bytes;
    for (uint32_t i = 0; i < list->stamp_count && sound; i++)
        sound = list->stamps[i].path < bytes;
    return sound;
}

/* Copy the arrays from an index, and check sizes, offsets and time stamps. Return false if it is
 * invalid. */
static bool index_take(gp_image_list *list, const char *index, size_t bytes)
{
    index_header header;
    index_part parts[PARTS];
    size_t at = sizeof(header);

    if (bytes < at)
        return false;
    memcpy(&header, index, sizeof(header));
    parts_of(parts, list, &header);
    for (int i = 0; i < PARTS; i++) {
        *parts[i].data = parts[i].bytes > bytes - at ? NULL : gp_malloc(parts[i].bytes + 1);
        if (*parts[i].data == NULL)
            return false;
        memcpy(*parts[i].data, index + at, parts[i].bytes);
        at += parts[i].bytes;
    }
    list->text.data[header.text_bytes] = '\0';
    list->text.bytes = header.text_bytes;
    list->text.capacity = header.text_bytes + 1;
    list->count = header.count;
    list->place_count = header.place_count;
    list->class_count = header.class_count;
    list->stamp_count = header.stamp_count;
    list->others = header.others;
    return at == bytes && is_sound(list) && stamps_hold(list);
}

bool gp_image_index_load(gp_image_list *list, const char *directory, gp_data_role role)
{
    char path[PATH_MAX], *index = NULL;
    size_t bytes;

    gp_image_list_init(list);
    if (!index_path(path, directory, role) ||
        gp_cached_read(&index, &bytes, path, index_word, SIZE_MAX / 2, NULL) != GP_OK)
        return false;
    list->root = gp_strdup(directory);
    list->from_index = list->root != NULL && index_take(list, index, bytes);
    gp_free(index);
    if (list->from_index)
        return true;
    gp_image_list_deinit(list);
    gp_image_list_init(list);
    return false;
}

void gp_image_index_save(const gp_image_list *list, const char *directory, gp_data_role role)
{
    const index_header header = { .others = list->others,
                                  .text_bytes = list->text.bytes,
                                  .count = list->count,
                                  .place_count = list->place_count,
                                  .class_count = list->class_count,
                                  .stamp_count = list->stamp_count };
    gp_image_list shown = *list;
    index_part parts[PARTS];
    char path[PATH_MAX];
    gp_buffer index;

    if (list->count < GP_IMAGE_INDEX_COUNT_MIN || list->left_out > 0)
        return;
    for (uint32_t i = 0; i < list->stamp_count; i++)
        if (list->stamps[i].changed_ns / 1000000000 > time(NULL) - SETTLED_SECONDS)
            return;
    gp_buffer_init(&index, SIZE_MAX / 2);
    gp_status status = gp_buffer_append(&index, &header, sizeof(header), NULL);

    parts_of(parts, &shown, &header);
    for (int i = 0; i < PARTS && status == GP_OK; i++)
        status = gp_buffer_append(&index, *parts[i].data, parts[i].bytes, NULL);
    if (status == GP_OK && index_path(path, directory, role))
        (void)gp_cached_write(path, index_word, index.data, index.bytes, INDEXES_MAX, NULL);
    gp_buffer_deinit(&index);
}
