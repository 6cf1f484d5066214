/* Open tar archives as a store: class folders, or images with label images. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/data/format/csv.h"
#include "common/data/source/image_store.h"
#include "common/data/store/store_ops.h"
#include "common/data/format/tar.h"

/* Archives as a gp_tree. */
typedef struct tar_place {
    gp_tar_index index;
    const char *path;
    size_t root; /* length of the prefix that all names share */
} tar_place;

static bool is_below(const char *name, const char *folder)
{
    const size_t length = strlen(folder);

    return strncmp(name, folder, length) == 0 && name[length] == '/';
}

static bool place_has(void *context, const char *folder, bool folders)
{
    const tar_place *place = context;
    const gp_image_list *all = &place->index.all;

    (void)folders;
    for (uint32_t i = 0; i < all->count; i++)
        if (is_below(gp_image_list_name(all, i) + place->root, folder))
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
        if (is_below(gp_image_list_name(all, i) + place->root, folder))
            status = gp_image_list_add_member(list, all->entries[i].place, gp_image_list_name(all, i), label,
                                              all->offsets[i], all->sizes[i], err);
    return status;
}

/* Search for one file in an archive. */
typedef struct member_search {
    const char *root; /* a name that starts with the prefix; only root_bytes bytes are compared */
    size_t root_bytes;
    const char *file;
    uint64_t offset, bytes;
    bool found;
} member_search;

static gp_status member_look(void *context, const gp_tar_entry *entry, gp_error *err)
{
    member_search *search = context;
    const char *name = entry->name;

    (void)err;
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    if (entry->link != NULL || strncmp(name, search->root, search->root_bytes) != 0 ||
        strcmp(name + search->root_bytes, search->file) != 0)
        return GP_OK;
    search->offset = entry->offset;
    search->bytes = entry->bytes;
    search->found = true;
    return GP_OK;
}

/* Read an archive member's text. GP_ENOENT, without a message: the archive lacks it. */
static gp_status member_read(char **text, member_search *search, const char *archive, gp_error *err)
{
    const int fd = open(archive, O_RDONLY | O_CLOEXEC);
    gp_status status;

    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot open %s", archive);
    status = gp_tar_walk(fd, archive, member_look, search, err);
    if (status == GP_OK && !search->found)
        status = GP_ENOENT;
    if (status == GP_OK && search->bytes > GP_CSV_BYTES_MAX)
        status = gp_fail(err, GP_ELIMIT, "%s in %s has more than %d bytes", search->file, archive,
                         GP_CSV_BYTES_MAX);
    *text = status == GP_OK ? gp_calloc(search->bytes + 1, 1) : NULL;
    if (status == GP_OK && *text == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory to read %s of %s", search->file, archive);
    if (status == GP_OK && pread(fd, *text, search->bytes, (off_t)search->offset) != (ssize_t)search->bytes)
        status = gp_fail(err, GP_EIO, "cannot read %s of %s", search->file, archive);
    close(fd);
    if (status != GP_OK)
        gp_free(*text);
    return status;
}

static gp_status place_read(void *context, gp_csv *csv, const char *file, const char *path, gp_error *err)
{
    const tar_place *place = context;
    const gp_image_list *all = &place->index.all;
    gp_status status = GP_ENOENT;

    for (uint32_t i = 0; i < all->place_count && status == GP_ENOENT; i++) {
        member_search search = { .root = gp_image_list_name(all, 0),
                                 .root_bytes = place->root,
                                 .file = file };
        char *text;

        status = member_read(&text, &search, gp_image_list_place(all, i), err);
        if (status == GP_OK)
            gp_csv_init(csv, path, text, search.bytes);
    }
    return status;
}

gp_status gp_store_open_tar(gp_store **out, const char *path, gp_data_role role,
                            const gp_store_options *options, gp_error *err)
{
    tar_place archives = { .path = path };
    gp_image_list list;
    gp_status status = gp_tar_index_open(&archives.index, path, options->progress, err);

    if (status != GP_OK) {
        gp_tar_index_close(&archives.index);
        return status;
    }
    archives.root = gp_tar_index_root(&archives.index);
    const gp_tree place = { .root = path,
                            .context = &archives,
                            .has = place_has,
                            .list = place_list,
                            .read = place_read,
                            .member_root = archives.root };

    if (gp_pixels_is_at(&place)) {
        status = gp_pixels_open_at(out, &place, role, options, err);
        gp_tar_index_close(&archives.index);
        return status;
    }
    status = gp_tar_index_list(&list, &archives.index, path, role, err);
    gp_tar_index_close(&archives.index);
    if (status != GP_OK) {
        gp_image_list_deinit(&list);
        return status;
    }
    return gp_image_store_open(out, "tar", path, &list, NULL, options, err);
}
