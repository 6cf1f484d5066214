/* image_store.h -- the store behind folders, CSV files and archives of images: a list of images, decoded as they are
 * read, brought to one size, and kept in memory within a limit. */
#ifndef GP_IMAGE_STORE_H
#define GP_IMAGE_STORE_H

#include "common/data/image_list.h"
#include "common/data/store_ops.h"

/* Looked at by the open, evenly spread over the list: they decide size and channels where the caller does not. */
enum { GP_IMAGE_PROBES = 1024 };

/* gp_image_store_open -- a store over the list.
 *   list  taken over, also on failure; at least one class
 * GP_EINVAL: the images looked at have several sizes and the caller names none. */
gp_status gp_image_store_open(gp_store **out, const char *kind, const char *source, gp_image_list *list,
                              const gp_store_options *options, gp_error *err);

/* gp_folder_list -- the images below a directory of class folders (folder.c).  The list is the caller's, to deinit
 * on failure too. */
gp_status gp_folder_list(gp_image_list *list, const char *directory, gp_data_role role,
                         const gp_store_options *options, gp_error *err);

/* Whether a directory has any directory in it. */
bool gp_folder_is(const char *path);

#endif
