/* Images without labels: one file, or a directory with images and no sub-directories. They can be
 * shown and predicted, but not used for training. */
#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/memory/alloc.h"
#include "common/data/store/class_match.h"
#include "common/data/source/image_store.h"

bool gp_plain_images_is(const char *path)
{
    struct stat stat_;
    struct dirent *entry;
    bool found = false;
    DIR *directory;

    if (stat(path, &stat_) == 0 && S_ISREG(stat_.st_mode))
        return gp_image_list_wants(path);
    if (gp_folder_is(path))
        return false;
    directory = opendir(path);
    while (directory != NULL && !found && (entry = readdir(directory)) != NULL)
        found = entry->d_name[0] != '.' && gp_image_list_wants(entry->d_name);
    if (directory != NULL)
        closedir(directory);
    return found;
}

static gp_status file_add(gp_image_list *list, const char *path, gp_error *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? gp_strdup(".") : gp_strdup(path);
    uint32_t place;
    gp_status status;

    if (folder == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the path %s", path);
    if (slash != NULL)
        folder[slash == path ? 1 : slash - path] = '\0';
    status = gp_image_list_add_place(list, folder, &place, err);
    if (status == GP_OK)
        status = gp_image_list_add(list, place, slash == NULL ? path : slash + 1, -1, err);
    gp_free(folder);
    return status;
}

gp_status gp_plain_images_role(const char *path, gp_data_role role, gp_error *err)
{
    if (role == GP_DATA_GIVEN)
        return GP_OK;
    return gp_fail(err, GP_EINVAL,
                   "%s has images without labels; training and evaluation need class folders "
                   "(%s/CLASS/NAME.jpg), label images or a CSV file",
                   path, path);
}

gp_status gp_plain_images_open(gp_store **out, const char *path, gp_data_role role,
                               const gp_store_options *options, gp_error *err)
{
    gp_image_list list;
    struct stat stat_;
    gp_status status = gp_plain_images_role(path, role, err);

    if (status != GP_OK)
        return status;
    gp_image_list_init(&list);
    if (stat(path, &stat_) == 0 && S_ISREG(stat_.st_mode))
        status = file_add(&list, path, err);
    else
        status = gp_folder_list_all(&list, path, options, err);
    if (status == GP_OK)
        /* a store needs at least one class */
        status = gp_image_list_add_class(&list, GP_CLASS_NONE, err);
    return gp_image_store_open(out, "images", path, &list, NULL, options, status, err);
}
