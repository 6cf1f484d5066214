/* Save and load image lists on disk. */
#include "common/data/source/image_index.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/cached.h"
#include "common/base/memory/crc32c.h"
#include "common/base/system/directory.h"
#include "common/base/memory/hash.h"

enum { SETTLED_SECONDS = 2 };

/* File header; the arrays follow in the order of parts_of().
 *
 * The paths of places and stamps are relative to the source: "" or starting with a slash. Processes
 * may name one source in different ways (the client "photos", its workers "/home/me/photos"), and
 * each expects paths that start with the name it used. */
typedef struct index_header {
    char magic[8];
    uint64_t others, text_bytes;
    uint32_t count, place_count, class_count, stamp_count;
    uint32_t sum, unused; /* CRC32C over the arrays */
} index_header;

static const char index_magic[8] = "gpimg 2\n";

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
static bool index_path(char path[PATH_MAX], const char *directory, gp_data_role role, bool make)
{
    char *real = realpath(directory, NULL);
    uint64_t hash = GP_HASH_BEGIN ^ (uint64_t)role;
    char below[PATH_MAX];
    bool fits;

    if (real == NULL || gp_cache_path(below, sizeof(below), "data", NULL, NULL) != GP_OK) {
        free(real);
        return false;
    }
    hash = gp_hash_add(hash, real, strlen(real));
    free(real);
    fits = (size_t)snprintf(path, PATH_MAX, "%s/.index/%016llx", below, (unsigned long long)hash) < PATH_MAX;
    if (fits && make)
        fits = gp_directory_make_above(path, 0700, NULL) == GP_OK;
    return fits;
}

/* Append the source directory and the relative path at offset *at to the text. Set *at to the
 * offset of the joined path. */
static gp_status path_join(gp_buffer *text, const char *directory, size_t length, uint64_t *at)
{
    /* remains valid: the text has room for all paths */
    const char *rest = (const char *)text->data + *at;
    uint64_t joined = text->bytes;
    gp_status status = gp_buffer_append(text, directory, length, NULL);

    if (status == GP_OK)
        status = gp_buffer_append(text, rest, strlen(rest) + 1, NULL);
    *at = joined;
    return status;
}

/* Turn the relative paths in a loaded list into paths below `directory`. */
static bool paths_extend(gp_image_list *list, const char *directory)
{
    size_t length = strlen(directory), more = 0;
    const char *text = (const char *)list->text.data;
    gp_status status;

    for (uint32_t i = 0; i < list->place_count; i++)
        more += length + strlen(text + list->places[i]) + 1;
    for (uint32_t i = 0; i < list->stamp_count; i++)
        more += length + strlen(text + list->stamps[i].path) + 1;
    status = gp_buffer_reserve(&list->text, more, NULL);
    for (uint32_t i = 0; i < list->place_count && status == GP_OK; i++)
        status = path_join(&list->text, directory, length, &list->places[i]);
    for (uint32_t i = 0; i < list->stamp_count && status == GP_OK; i++)
        status = path_join(&list->text, directory, length, &list->stamps[i].path);
    gp_image_list_trim(list);
    return status == GP_OK;
}

/* Return whether every listed directory is unchanged. */
static bool stamps_hold(const gp_image_list *list)
{
    struct stat stat_;

    for (uint32_t i = 0; i < list->stamp_count; i++) {
        const gp_image_stamp *stamp = &list->stamps[i];

        if (stat((const char *)list->text.data + stamp->path, &stat_) != 0 || stat_.st_ino != stamp->inode ||
            stat_.st_dev != stamp->device ||
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

/* Read an index and check header, size, checksum, offsets and time stamps. Return false if it is
 * invalid. */
static bool index_read(gp_image_list *list, const char *directory, FILE *file)
{
    index_header header;
    index_part parts[PARTS];
    struct stat stat_;
    uint64_t bytes = sizeof(header);
    uint32_t sum = 0;

    if (fread(&header, sizeof(header), 1, file) != 1 || memcmp(header.magic, index_magic, 8) != 0 ||
        fstat(fileno(file), &stat_) != 0)
        return false;
    parts_of(parts, list, &header);
    for (int i = 0; i < PARTS; i++)
        bytes += parts[i].bytes;
    if (header.text_bytes > GP_IMAGE_NAMES_BYTES_MAX || bytes != (uint64_t)stat_.st_size)
        return false;
    for (int i = 0; i < PARTS; i++) {
        *parts[i].data = gp_malloc(parts[i].bytes + 1);
        if (*parts[i].data == NULL || fread(*parts[i].data, 1, parts[i].bytes, file) != parts[i].bytes)
            return false;
        sum = gp_crc32c(sum, *parts[i].data, parts[i].bytes);
    }
    list->text.data[header.text_bytes] = '\0';
    list->text.bytes = header.text_bytes;
    list->text.capacity = header.text_bytes + 1;
    list->count = list->capacity = header.count;
    list->place_count = list->place_capacity = header.place_count;
    list->class_count = list->class_capacity = header.class_count;
    list->stamp_count = list->stamp_capacity = header.stamp_count;
    list->others = header.others;
    return sum == header.sum && is_sound(list) && paths_extend(list, directory) && stamps_hold(list);
}

bool gp_image_index_load(gp_image_list *list, const char *directory, gp_data_role role)
{
    char path[PATH_MAX];
    FILE *file = index_path(path, directory, role, false) ? fopen(path, "re") : NULL;
    bool valid;

    gp_image_list_init(list);
    if (file == NULL)
        return false;
    valid = index_read(list, directory, file);
    fclose(file);
    if (!valid) {
        gp_image_list_deinit(list);
        gp_image_list_init(list);
    }
    list->from_index = valid;
    return valid;
}

/* Write the list with relative paths, without their first `length` bytes (the source directory). No
 * text is copied: offsets advance past the prefix. */
static bool index_write(const gp_image_list *list, size_t length, FILE *file)
{
    gp_image_list shown = *list;
    index_header header = { .others = list->others,
                            .text_bytes = list->text.bytes,
                            .count = list->count,
                            .place_count = list->place_count,
                            .class_count = list->class_count,
                            .stamp_count = list->stamp_count };
    index_part parts[PARTS];
    bool good;

    shown.places = gp_calloc(list->place_count + 1, sizeof(*shown.places));
    shown.stamps = gp_calloc(list->stamp_count + 1, sizeof(*shown.stamps));
    good = shown.places != NULL && shown.stamps != NULL;
    for (uint32_t i = 0; good && i < list->place_count; i++)
        shown.places[i] = list->places[i] + length;
    for (uint32_t i = 0; good && i < list->stamp_count; i++) {
        shown.stamps[i] = list->stamps[i];
        shown.stamps[i].path += length;
    }
    memcpy(header.magic, index_magic, 8);
    parts_of(parts, &shown, &header);
    for (int i = 0; i < PARTS && good; i++)
        header.sum = gp_crc32c(header.sum, *parts[i].data, parts[i].bytes);
    good = good && fwrite(&header, sizeof(header), 1, file) == 1;
    for (int i = 0; i < PARTS && good; i++)
        good = fwrite(*parts[i].data, 1, parts[i].bytes, file) == parts[i].bytes;
    gp_free(shown.places);
    gp_free(shown.stamps);
    return good;
}

/* Return whether all paths in the list start with the directory. */
static bool is_below(const gp_image_list *list, const char *directory, size_t length)
{
    const char *text = (const char *)list->text.data;
    bool below = true;

    for (uint32_t i = 0; i < list->place_count && below; i++)
        below = strncmp(text + list->places[i], directory, length) == 0;
    for (uint32_t i = 0; i < list->stamp_count && below; i++)
        below = strncmp(text + list->stamps[i].path, directory, length) == 0;
    return below;
}

void gp_image_index_save(const gp_image_list *list, const char *directory, gp_data_role role)
{
    char path[PATH_MAX], temporary[PATH_MAX + 16];
    struct timespec now;
    FILE *file;
    bool good;
    int fd;

    if (list->count < GP_IMAGE_INDEX_COUNT_MIN || list->left_out > 0 ||
        !is_below(list, directory, strlen(directory)))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    for (uint32_t i = 0; i < list->stamp_count; i++)
        if (list->stamps[i].changed_ns / 1000000000 > now.tv_sec - SETTLED_SECONDS)
            return;
    if (!index_path(path, directory, role, true))
        return;
    snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    fd = mkostemp(temporary, O_CLOEXEC);
    file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    good = index_write(list, strlen(directory), file);
    good = fclose(file) == 0 && good;
    if (!good || rename(temporary, path) != 0)
        unlink(temporary);
}
