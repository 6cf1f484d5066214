/* List images in tar archives, with member names of the form
 * [...]/[train|test/]CLASS/.../NAME.jpg. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/hash.h"
#include "common/base/system/file.h"
#include "common/data/image/image.h"
#include "common/data/source/image_store.h"
#include "common/data/format/csv.h"
#include "common/data/format/tar.h"

#define LINKS_BYTES_MAX ((size_t)4 << 30)

/* Return a name without leading "./", which many archives have. */
static const char *plain_name(const char *name)
{
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    return name;
}

static void link_leave_out(gp_image_list *list, const char *archive, const char *name, const char *target,
                           const char *cause)
{
    gp_error said;

    gp_fail(&said, GP_ENOENT, "%s: %.80s is a link to %.80s%s", archive, name, target, cause);
    gp_image_list_leave_out(list, said.message);
}

static void sparse_leave_out(gp_image_list *list, const char *archive, const char *name)
{
    gp_error said;

    gp_fail(&said, GP_EUNSUPPORTED,
            "%s: %.80s is sparse, which is not supported; write the archive without --sparse", archive, name);
    gp_image_list_leave_out(list, said.message);
}

enum { REPORT_EACH = 256 };

gp_status gp_tar_index_take(void *context, const gp_tar_entry *entry, gp_error *err)
{
    gp_tar_index *index = context;
    const char *name = plain_name(entry->name), *slash = strrchr(name, '/');
    const char *last = slash == NULL ? name : slash + 1;
    gp_status status = GP_OK;

    if (index->archive_bytes > 0 && index->all.count % REPORT_EACH == 0)
        gp_progress_report(index->progress, "listing", NULL, entry->offset, index->archive_bytes);
    for (int i = 0; entry->link == NULL && entry->bytes <= GP_CSV_BYTES_MAX && gp_class_files[i] != NULL; i++)
        if (strcmp(last, gp_class_files[i]) == 0)
            status = gp_image_list_add_member(&index->texts, index->place, name, -1, entry->offset,
                                              (uint32_t)entry->bytes, err);
    if (status != GP_OK)
        return status;
    if (*last == '.' || !gp_image_list_wants(last)) {
        index->all.others += entry->link == NULL;
        return GP_OK;
    }
    if (entry->symbolic)
        link_leave_out(&index->all, gp_image_list_place(&index->all, index->place), name, entry->link,
                       "; symbolic links in archives are not supported");
    else if (entry->link != NULL) {
        const char *target = plain_name(entry->link);
        const gp_tar_link link = { .name = index->text.bytes,
                                   .target = index->text.bytes + strlen(name) + 1,
                                   .place = index->place,
                                   .before = index->all.count };

        status = gp_buffer_append(&index->text, name, strlen(name) + 1, err);
        if (status == GP_OK)
            status = gp_buffer_append(&index->text, target, strlen(target) + 1, err);
        if (status == GP_OK)
            status = gp_buffer_append(&index->links, &link, sizeof(link), err);
    } else if (entry->sparse) {
        sparse_leave_out(&index->all, gp_image_list_place(&index->all, index->place), name);
    }
    if (entry->link != NULL || entry->sparse)
        return status;
    if (entry->bytes > GP_IMAGE_FILE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has %llu bytes, at most %d are supported", name,
                       (unsigned long long)entry->bytes, GP_IMAGE_FILE_BYTES_MAX);
    return gp_image_list_add_member(&index->all, index->place, name, -1, entry->offset,
                                    (uint32_t)entry->bytes, err);
}

static int member_compare(const gp_image_list *all, uint32_t index, uint32_t place, const char *name)
{
    uint32_t own = all->entries[index].place;

    return own != place ? (own < place ? -1 : 1) : strcmp(gp_image_list_name(all, index), name);
}

/* Order members by archive and name, and equal names by position. */
static int member_order(const void *left, const void *right, void *list)
{
    const gp_image_list *all = list;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    int order = member_compare(all, a, all->entries[b].place, gp_image_list_name(all, b));

    return order != 0 ? order : (a < b ? -1 : 1);
}

/* Return the last of the sorted members with this archive and name, and a number below `before`.
 * UINT32_MAX: not found. */
static uint32_t member_find(const gp_image_list *all, const uint32_t *sorted, uint32_t count, uint32_t place,
                            const char *name, uint32_t before)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const int order = member_compare(all, sorted[middle], place, name);

        if (order < 0 || (order == 0 && sorted[middle] < before))
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && member_compare(all, sorted[low - 1], place, name) == 0 ? sorted[low - 1] : UINT32_MAX;
}

/* Add each hard link as a member with the contents that the target has at that position of the
 * archive. Leave out links that a later file with the same name replaces. */
static gp_status links_resolve(gp_tar_index *index, gp_error *err)
{
    gp_image_list *all = &index->all;
    const gp_tar_link *links = (const gp_tar_link *)(const void *)index->links.data;
    const size_t link_count = index->links.bytes / sizeof(*links);
    const uint32_t count = all->count;
    uint32_t *sorted = link_count == 0 ? NULL : gp_calloc(count + 1, sizeof(*sorted));
    gp_status status = GP_OK;

    if (link_count == 0)
        return GP_OK;
    if (sorted == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the names of %u images", count);
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = i;
    qsort_r(sorted, count, sizeof(*sorted), member_order, all);
    for (size_t i = 0; i < link_count && status == GP_OK; i++) {
        const char *name = (const char *)index->text.data + links[i].name;
        const char *target = (const char *)index->text.data + links[i].target;
        const uint32_t own = member_find(all, sorted, count, links[i].place, name, UINT32_MAX);
        const uint32_t found = member_find(all, sorted, count, links[i].place, target, links[i].before);

        if (own != UINT32_MAX && own >= links[i].before)
            continue;
        if (found == UINT32_MAX)
            link_leave_out(all, gp_image_list_place(all, links[i].place), name, target,
                           ", which is not an image in the archive");
        else
            status = gp_image_list_add_member(all, links[i].place, name, -1, all->offsets[found],
                                              all->sizes[found], err);
    }
    gp_free(sorted);
    return status;
}

/* Return whether a component of a name begins with a dot, apart from . and .. themselves. */
static bool is_hidden(const char *name)
{
    for (;; name += strcspn(name, "/") + 1) {
        const size_t bytes = strcspn(name, "/");

        if (name[0] == '.' && bytes > (name[1] == '.' ? 2 : 1))
            return true;
        if (name[bytes] == '\0')
            return false;
    }
}

/* Find a member's slot in a hash table of member numbers + 1: the slot of a member with the same
 * archive and name, or else a free one (0). */
static uint32_t *member_slot(const gp_image_list *all, uint32_t *slots, size_t slot_count, uint32_t index)
{
    const char *name = gp_image_list_name(all, index);
    const uint32_t place = all->entries[index].place;
    size_t at = gp_hash_add(GP_HASH_BEGIN ^ place, name, strlen(name)) & (slot_count - 1);

    while (slots[at] != 0 && member_compare(all, slots[at] - 1, place, name) != 0)
        at = (at + 1) & (slot_count - 1);
    return &slots[at];
}

/* Remove what a directory with the extracted archive would not show: hidden images, and those that
 * a later member with the same name replaces, as written by `tar --append` and `tar --update`. */
static gp_status members_reduce(gp_image_list *all, gp_error *err)
{
    const size_t root = all->count == 0 ? 0 : gp_tar_root(all);
    size_t slot_count = 64;
    uint32_t kept = 0;

    while (slot_count / 2 < all->count)
        slot_count *= 2;
    uint32_t *slots = gp_calloc(slot_count, sizeof(*slots));

    if (slots == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the names of %u images", all->count);
    for (uint32_t i = 0; i < all->count; i++)
        *member_slot(all, slots, slot_count, i) = i + 1;
    for (uint32_t i = 0; i < all->count; i++) {
        if (*member_slot(all, slots, slot_count, i) != i + 1)
            continue;
        if (is_hidden(gp_image_list_name(all, i) + root)) {
            all->others++;
            continue;
        }
        all->entries[kept] = all->entries[i];
        all->labels[kept] = all->labels[i];
        all->offsets[kept] = all->offsets[i];
        all->sizes[kept++] = all->sizes[i];
    }
    gp_free(slots);
    all->count = kept;
    return GP_OK;
}

static gp_status archive_take(gp_tar_index *index, const char *path, gp_error *err)
{
    size_t bytes;
    int fd;
    gp_status status = gp_file_open(&fd, &bytes, path, SIZE_MAX, err);

    if (status != GP_OK)
        return status;
    index->archive_bytes = bytes;
    status = gp_image_list_add_place(&index->all, path, &index->place, err);
    if (status == GP_OK)
        status = gp_tar_walk(fd, path, gp_tar_index_take, index, err);
    close(fd);
    return status;
}

static int is_archive(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');

    return entry->d_name[0] != '.' && dot != NULL && strcasecmp(dot, ".tar") == 0;
}

/* Compare by bytes; alphasort() depends on the locale. */
static int archive_order(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

bool gp_tar_is_file(const char *path)
{
    const size_t bytes = strlen(path);

    return bytes >= 4 && strcmp(path + bytes - 4, ".tar") == 0;
}

bool gp_tar_is(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    bool found = false;

    while (directory != NULL && !found && (entry = readdir(directory)) != NULL)
        found = is_archive(entry);
    if (directory != NULL)
        closedir(directory);
    return found;
}

/* Directories are read in the order of the names. */
gp_status gp_tar_files_take(void *context, gp_tar_index *index, gp_error *err)
{
    const char *source = context;
    struct dirent **entries = NULL;
    char path[PATH_MAX];
    int count;
    gp_status status = GP_OK;

    if (!gp_tar_is(source))
        return archive_take(index, source, err);
    count = scandir(source, &entries, is_archive, archive_order);
    if (count < 0)
        return gp_fail_errno(err, GP_EIO, "cannot list %s", source);
    for (int i = 0; i < count; i++) {
        if (status == GP_OK &&
            (size_t)snprintf(path, sizeof(path), "%s/%s", source, entries[i]->d_name) >= sizeof(path))
            status = gp_fail(err, GP_ELIMIT, "the path %.200s... is too long", source);
        if (status == GP_OK)
            status = archive_take(index, path, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* ---- parts and classes ---- */

static const char *const part_names[3][5] = {
    [GP_DATA_TRAIN] = { "train", NULL },
    [GP_DATA_TEST] = { "val", "validation", "valid", "test", NULL },
    [GP_DATA_GIVEN] = { "test", "val", "validation", "valid", NULL },
};

bool gp_tar_is_below(const char *name, const char *folder)
{
    size_t length = strlen(folder);

    return strncmp(name, folder, length) == 0 && name[length] == '/';
}

static bool begins_with_part(const char *name)
{
    bool part = gp_tar_is_below(name, part_names[GP_DATA_TRAIN][0]);

    for (int i = 0; part_names[GP_DATA_TEST][i] != NULL; i++)
        part |= gp_tar_is_below(name, part_names[GP_DATA_TEST][i]);
    return part;
}

size_t gp_tar_root(const gp_image_list *all)
{
    size_t root = 0;

    for (;;) {
        const char *first = gp_image_list_name(all, 0) + root;
        const char *slash = strchr(first, '/');
        size_t length = slash == NULL ? 0 : (size_t)(slash - first) + 1;

        if (length == 0 || begins_with_part(first) || strchr(first + length, '/') == NULL)
            return root;
        for (uint32_t i = 1; i < all->count; i++)
            if (strncmp(gp_image_list_name(all, i) + root, first, length) != 0 ||
                strchr(gp_image_list_name(all, i) + root + length, '/') == NULL)
                return root;
        root += length;
    }
}

static bool is_in_class(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash != NULL && strchr(slash + 1, '/') != NULL;
}

/* Return whether a part has images; `classes`: in class folders. */
static bool has_part(const gp_image_list *all, size_t root, const char *part, bool classes)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const char *name = gp_image_list_name(all, i) + root;

        if (gp_tar_is_below(name, part) && (!classes || is_in_class(name)))
            return true;
    }
    return false;
}

/* Return whether the members are divided into parts, as the folders in folder.c. */
static gp_status is_divided(bool *divided, const gp_image_list *all, size_t root, const char *path,
                            gp_error *err)
{
    const char *train = part_names[GP_DATA_TRAIN][0], *other = NULL;
    bool test = false;

    *divided = true;
    for (uint32_t i = 0; i < all->count; i++) {
        const char *name = gp_image_list_name(all, i) + root;

        if (!begins_with_part(name))
            other = name;
        test = test || (begins_with_part(name) && !gp_tar_is_below(name, train));
        *divided = *divided && begins_with_part(name) && is_in_class(name);
    }
    if (!test || !has_part(all, root, train, true))
        return GP_OK;
    *divided = true;
    return other == NULL ? GP_OK
                         : gp_fail(err, GP_ECORRUPT,
                                   "%s has train/ and a test part, and also %.200s, which is in no part; "
                                   "leave it out of the archive",
                                   path, other);
}

/* Find the part for a role. "": there are no parts; NULL: no part for this role. */
static gp_status part_find(const char **part, const gp_image_list *all, size_t root, const char *path,
                           gp_data_role role, gp_error *err)
{
    bool divided;
    gp_status status = is_divided(&divided, all, root, path, err);

    *part = role == GP_DATA_TEST ? NULL : "";
    if (status != GP_OK || !divided)
        return status;
    for (int i = 0; part_names[role][i] != NULL; i++)
        if (has_part(all, root, part_names[role][i], false)) {
            *part = has_part(all, root, part_names[role][i], true) ? part_names[role][i] : NULL;
            return GP_OK;
        }
    *part = role == GP_DATA_GIVEN ? "train" : NULL;
    return GP_OK;
}

/* Add the members for a role, with their classes. The training part, if it exists, defines the
 * classes. */
static gp_status members_label(gp_image_list *list, const gp_image_list *all, size_t root, const char *part,
                               gp_error *err)
{
    bool train = part[0] != '\0' && strcmp(part, "train") != 0 && has_part(all, root, "train", true);
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < all->place_count && status == GP_OK; i++) {
        uint32_t place;

        status = gp_image_list_add_place(list, gp_image_list_place(all, i), &place, err);
    }
    for (uint32_t i = 0; i < all->count && status == GP_OK; i++) {
        const char *name = gp_image_list_name(all, i),
                   *archive = gp_image_list_place(all, all->entries[i].place);
        bool ours = part[0] == '\0' || gp_tar_is_below(name + root, part);
        size_t part_bytes = part[0] == '\0' ? 0 : strlen(ours ? part : "train") + 1;
        int32_t label;

        if (!ours && !(train && gp_tar_is_below(name + root, "train")))
            continue;
        const char *from = name + root + part_bytes, *slash = strchr(from, '/');
        char class[NAME_MAX + 1]; /* the first directory */

        if (slash == NULL || slash == from || (size_t)(slash - from) >= sizeof(class))
            return gp_fail(err, GP_ECORRUPT,
                           "%s: %.200s is not in a class folder; images must be CLASS/NAME.jpg", archive,
                           name);
        snprintf(class, sizeof(class), "%.*s", (int)(slash - from), from);
        status = gp_image_list_class_of(list, class, &label, err);
        if (status == GP_OK && ours)
            status = gp_image_list_add_member(list, all->entries[i].place, name, label, all->offsets[i],
                                              all->sizes[i], err);
    }
    return status;
}

gp_status gp_tar_index_open(gp_tar_index *index, const char *path, const gp_progress *progress,
                            gp_tar_fill fill, void *context, gp_error *err)
{
    *index = (gp_tar_index){ .progress = progress };
    gp_image_list_init(&index->all);
    gp_image_list_init(&index->texts);
    gp_buffer_init(&index->links, LINKS_BYTES_MAX);
    gp_buffer_init(&index->text, LINKS_BYTES_MAX);
    gp_status status = fill(context, index, err);

    if (status == GP_OK)
        status = links_resolve(index, err);
    if (status == GP_OK)
        status = members_reduce(&index->all, err);
    if (status == GP_OK && index->all.count == 0)
        status = gp_fail(err, GP_ENOENT, "%s has no .jpg or .png file", path);
    return status;
}

void gp_tar_index_close(gp_tar_index *index)
{
    gp_image_list_deinit(&index->all);
    gp_image_list_deinit(&index->texts);
    gp_buffer_deinit(&index->links);
    gp_buffer_deinit(&index->text);
}

gp_status gp_tar_index_list(gp_image_list *list, gp_tar_index *index, const char *path, gp_data_role role,
                            gp_error *err)
{
    const size_t root = gp_tar_root(&index->all);
    const char *part;
    gp_status status = part_find(&part, &index->all, root, path, role, err);

    gp_image_list_init(list);
    if (status == GP_OK && part == NULL)
        return gp_fail(err, GP_ENOENT, "%s has no %s images: it has no %s/", path,
                       role == GP_DATA_TRAIN ? "training" : "test", role == GP_DATA_TRAIN ? "train" : "test");
    if (status == GP_OK)
        status = members_label(list, &index->all, root, part, err);
    if (status == GP_OK)
        status = gp_image_list_sort_classes(list, false, err);
    list->others = index->all.others;
    list->left_out = index->all.left_out;
    list->left_out_first = index->all.left_out_first;
    index->all.left_out_first = NULL;
    if (status == GP_OK)
        gp_image_list_trim(list);
    return status;
}
