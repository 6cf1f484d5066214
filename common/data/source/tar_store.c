/* Open tar archives as a store: class folders, or images with label images. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/data/format/csv.h"
#include "common/data/source/image_store.h"

/* Archives as a gp_tree. */
typedef struct tar_place {
    gp_tar_index index;
    const char *path;
    size_t root; /* length of the prefix that all names share */
} tar_place;

static bool place_has(void *context, const char *folder, bool folders)
{
    const tar_place *place = context;
    const gp_image_list *all = &place->index.all;

    (void)folders;
    for (uint32_t i = 0; i < all->count; i++)
        if (gp_tar_is_below(gp_image_list_name(all, i) + place->root, folder))
            return true;
    return false;
}

static gp_status place_list(void *context, gp_image_list *list, const char *folder, int32_t label,
                            const gp_store_options *options, gp_error *err)
{
    const tar_place *place = context;
    const gp_image_list *all = &place->index.all;
    gp_status status = GP_OK;
    uint32_t same;

    (void)options;
    for (uint32_t i = 0; i < all->place_count && status == GP_OK; i++)
        status = gp_image_list_add_place(list, gp_image_list_place(all, i), &same, err);
    for (uint32_t i = 0; i < all->count && status == GP_OK; i++)
        if (gp_tar_is_below(gp_image_list_name(all, i) + place->root, folder))
            status = gp_image_list_add_member(list, all->entries[i].place, gp_image_list_name(all, i), label,
                                              all->offsets[i], all->sizes[i], err);
    return status;
}

/* Open a class file; see gp_tree. Of members with the same name, the last one counts. */
static gp_status place_read(void *context, gp_csv *csv, const char *file, const char *path, gp_error *err)
{
    const tar_place *place = context;
    const gp_image_list *texts = &place->index.texts;
    const char *root = gp_image_list_name(&place->index.all, 0), *name = NULL;
    gp_status status = GP_OK;
    uint32_t i = texts->count;

    while (i > 0) {
        name = gp_image_list_name(texts, --i);
        if (strncmp(name, root, place->root) == 0 && strcmp(name + place->root, file) == 0)
            break;
        name = NULL;
    }
    if (name == NULL)
        return GP_ENOENT;
    const char *archive = gp_image_list_place(&place->index.all, texts->entries[i].place);
    const int fd = open(archive, O_RDONLY | O_CLOEXEC);
    const uint32_t bytes = texts->sizes[i];
    char *text = gp_calloc((size_t)bytes + 1, 1);

    if (fd < 0 || text == NULL || gp_read_at(fd, text, bytes, texts->offsets[i]) != (ssize_t)bytes)
        status = gp_fail_errno(err, GP_EIO, "cannot read %s of %s", name, archive);
    if (fd >= 0)
        close(fd);
    if (status == GP_OK)
        gp_csv_init(csv, path, text, bytes);
    else
        gp_free(text);
    return status;
}

bool gp_tar_has_label_images(const gp_tar_index *index)
{
    tar_place archives = { .index = *index, .root = gp_tar_root(&index->all) };
    const gp_tree place = { .context = &archives, .has = place_has };

    return gp_pixels_is_at(&place);
}

/* Read the names in the archives at a path. The tree refers to *archives. Close the index with
 * gp_tar_index_close(), even after a failure. */
static gp_status archives_open(tar_place *archives, gp_tree *place, const char *path,
                               const gp_progress *progress, gp_error *err)
{
    *archives = (tar_place){ .path = path };
    gp_status status =
        gp_tar_index_open(&archives->index, path, progress, gp_tar_files_take, (void *)(uintptr_t)path, err);

    archives->root = status == GP_OK ? gp_tar_root(&archives->index.all) : 0;
    *place = (gp_tree){ .root = path,
                        .context = archives,
                        .has = place_has,
                        .list = place_list,
                        .read = place_read,
                        .member_root = archives->root };
    return status;
}

gp_status gp_tar_pixels_classes(struct gp_pixel_labels *labels, gp_image_list *list, const char *path,
                                gp_error *err)
{
    tar_place archives;
    gp_tree place;
    gp_status status = archives_open(&archives, &place, path, NULL, err);

    if (status == GP_OK)
        status = gp_pixels_classes_at(labels, list, &place, err);
    gp_tar_index_close(&archives.index);
    return status;
}

gp_status gp_store_open_tar(gp_store **out, const char *path, gp_data_role role,
                            const gp_store_options *options, gp_error *err)
{
    tar_place archives;
    gp_tree place;
    gp_image_list list;
    gp_status status = archives_open(&archives, &place, path, options->progress, err);

    gp_image_list_init(&list);
    if (status == GP_OK && gp_pixels_is_at(&place)) {
        status = gp_pixels_open_at(out, &place, role, options, err);
        gp_tar_index_close(&archives.index);
        return status;
    }
    if (status == GP_OK)
        status = gp_tar_index_list(&list, &archives.index, path, role, err);
    gp_tar_index_close(&archives.index);
    return gp_image_store_open(out, "tar", path, &list, NULL, options, status, err);
}
