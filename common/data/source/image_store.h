/* image_store.h -- the store behind folders, CSV files and archives of images: a list of images, decoded as they are
 * read, brought to one size, and kept in memory within a limit. */
#ifndef GP_IMAGE_STORE_H
#define GP_IMAGE_STORE_H

#include "common/data/source/image_labels.h"
#include "common/data/source/image_list.h"
#include "common/data/source/sources.h"
#include "common/data/store/store_ops.h"

/* Looked at by the open, evenly spread over the list: they decide size and channels where the caller does not. */
enum { GP_IMAGE_PROBES = 1024, GP_IMAGE_OBJECT_PROBES = 256 };

/* gp_image_store_open -- a store over the list.
 *   list    taken over, also on failure; at least one class
 *   labels  NULL: the list's labels, one a sample.  Else a class for each pixel; taken over in the same way
 * GP_EINVAL: the images looked at have several sizes and the caller names none. */
gp_status gp_image_store_open(gp_store **out, const char *kind, const char *source, gp_image_list *list,
                              gp_pixel_labels *labels, const gp_store_options *options, gp_error *err);

/* gp_folder_list_all -- every image below a directory, without labels. */
gp_status gp_folder_list_all(gp_image_list *list, const char *directory, const gp_store_options *options,
                             gp_error *err);

/* gp_folder_list -- the images below a directory of class folders (folder.c).  The list is the caller's, to deinit
 * on failure too. */
gp_status gp_folder_list(gp_image_list *list, const char *directory, gp_data_role role,
                         const gp_store_options *options, gp_error *err);

/* The same for the lines of a CSV file, path,label (csv_list.c). */
gp_status gp_csv_list(gp_image_list *list, const char *path, gp_data_role role,
                      const gp_store_options *options, gp_error *err);

/* A hard link among the images of an archive. */
typedef struct gp_tar_link {
    uint64_t name, target; /* offsets into the text of the links */
    uint32_t place;        /* the archive */
} gp_tar_link;

/* The images of all archives. Names are read first, since they decide about parts, classes and the common root. */
typedef struct gp_tar_index {
    gp_image_list all;           /* members with their whole names, without labels */
    uint32_t place;              /* the archive being read */
    gp_buffer links;             /* gp_tar_link, resolved when all archives have been read */
    gp_buffer text;              /* names and targets of the links */
    const gp_progress *progress; /* NULL: no reports */
    uint64_t archive_bytes;      /* of the archive being read; 0: not known */
} gp_tar_index;

/* Add each archive to index->all as a place and take its members, by gp_tar_walk() with gp_tar_index_take(). */
typedef gp_status (*gp_tar_fill)(void *context, gp_tar_index *index, gp_error *err);

/* Read all archives of a path: one file, or those of a directory. Release with gp_tar_index_close(), on failure too. */
gp_status gp_tar_index_open(gp_tar_index *index, const char *path, const gp_progress *progress,
                            gp_error *err);
void gp_tar_index_close(gp_tar_index *index);

/* Return the bytes of the directories that all names begin with and that are neither a part nor a class. */
size_t gp_tar_index_root(const gp_tar_index *index);

/* List the members of a role, with the class folders as labels. The list is the caller's, to deinit on failure too. */
gp_status gp_tar_index_list(gp_image_list *list, gp_tar_index *index, const char *path, gp_data_role role,
                            gp_error *err);

struct gp_tar_entry;
gp_status gp_tar_index_take(void *index, const struct gp_tar_entry *entry, gp_error *err);
gp_status gp_tar_list_with(gp_image_list *list, const char *path, gp_data_role role, gp_tar_fill fill,
                           void *context, gp_error *err);

/* gp_csv_list_text -- the list of a CSV file's text, whose paths are below `place`; text is taken over. */
gp_status gp_csv_list_text(gp_image_list *list, const char *path, const char *place, char *text, size_t bytes,
                           gp_error *err);

/* Whether a directory has any directory in it. */
bool gp_folder_is(const char *path);

/* What a directory of images beside one of label images is made of, wherever it lies.  Folders and files are named as below it. */
struct gp_csv;
typedef struct gp_pixels_place {
    const char *root; /* what it is called */
    void *context;
    bool (*has)(void *context, const char *folder);
    /* The images below a folder, none of which has a label, into a list that this begins; to deinit on failure too. */
    gp_status (*list)(void *context, gp_image_list *list, const char *folder, const gp_store_options *options,
                      gp_error *err);
    /* A file; path is what it is called, which lives as long as csv.  GP_ENOENT without a sentence: there is none. */
    gp_status (*read)(void *context, struct gp_csv *csv, const char *file, const char *path, gp_error *err);
    /* The list has the images and the order that it will be read in. */
    gp_status (*finish)(void *context, gp_image_list *list, gp_error *err);
    size_t member_root; /* archives: bytes of each member's name before the folder */
} gp_pixels_place;

gp_status gp_pixels_open_at(gp_store **out, const gp_pixels_place *place, gp_data_role role,
                            const gp_store_options *options, gp_error *err);
bool gp_pixels_is_at(const gp_pixels_place *place);
gp_status gp_pixels_classes_at(gp_pixel_labels *labels, gp_image_list *list, const gp_pixels_place *place,
                               gp_error *err);

/* Check that images without labels (plain_images.c) can have that role. GP_EINVAL: they can be predicted only. */
gp_status gp_plain_images_role(const char *path, gp_data_role role, gp_error *err);

/* gp_pixels_classes -- what a class file says: the numbers into *labels, the classes into the list, both begun by the caller.
 *   place  the file, or the directory or the source in S3 that it is in
 * GP_ENOENT: the directory has none.  GP_EIO: there is no such file. */
gp_status gp_pixels_classes(gp_pixel_labels *labels, gp_image_list *list, const char *place, gp_error *err);

#endif
