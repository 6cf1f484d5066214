/* The store behind folders, CSV files and archives of images. It decodes images when they are read,
 * resizes them to one size, and caches them in memory within a limit. */
#ifndef GP_IMAGE_STORE_H
#define GP_IMAGE_STORE_H

#include "common/data/source/image_reader.h"
#include "common/data/source/sources.h"
#include "common/data/store/store_ops.h"

/* Number of evenly spaced images that the open inspects (fewer in S3). They determine size and
 * channels if the caller gives none. */
enum { GP_IMAGE_PROBES = 1024, GP_IMAGE_OBJECT_PROBES = 256 };

/* ---- label images: one class for each pixel of the image they belong to ---- */

enum { GP_PIXEL_NONE = 255, GP_PIXEL_CLASSES_MAX = 254, GP_PIXEL_COLOURS_MAX = 256 };

/* Label images, one for each image in a list, and the meaning of their values: a class, or
 * GP_PIXEL_NONE. */
typedef struct gp_pixel_labels {
    gp_image_list list; /* label images in the order of the images */
    uint32_t value_count;
    /* class for each stored number below value_count; 255 is always GP_PIXEL_NONE */
    uint8_t meaning[256];
    /* colour for each number, for label images in colour */
    uint8_t colours[GP_PIXEL_COLOURS_MAX][3];
    bool coloured;
    char *classes_path; /* owned; class file, for messages; "": built-in classes */
} gp_pixel_labels;

void gp_pixel_labels_deinit(gp_pixel_labels *labels);

/* Decode label image `index` to classes, without resizing. The pixels belong to the reader.
 *   file_width, file_height  required size, that of the labelled image; 0: any */
gp_status gp_pixel_labels_load(const gp_pixel_labels *labels, gp_image_reader *r, uint32_t index,
                               uint32_t file_width, uint32_t file_height, gp_pixels *pixels, gp_error *err);

/* Decode label image `index` and resize it to height x width, into r->label. */
gp_status gp_pixel_labels_read(const gp_pixel_labels *labels, gp_image_reader *r, uint32_t index,
                               uint32_t height, uint32_t width, uint32_t file_width, uint32_t file_height,
                               gp_error *err);

/* Open a store over a list of images.
 *   list    at least one class; ownership passes to this function, even on failure
 *   labels  NULL: one label per sample, from the list; else one class per pixel; owned like `list`
 *   status  result of listing; an error is returned
 * GP_EINVAL: the inspected images have several sizes, and the caller gives none. */
gp_status gp_image_store_open(gp_store **out, const char *kind, const char *source, gp_image_list *list,
                              gp_pixel_labels *labels, const gp_store_options *options, gp_status status,
                              gp_error *err);

/* List all images below a directory, without labels. */
gp_status gp_folder_list_all(gp_image_list *list, const char *directory, const gp_store_options *options,
                             gp_error *err);

/* List the images below a directory of class folders (folder.c). The caller releases the list with
 * gp_image_list_deinit(), even after a failure. */
gp_status gp_folder_list(gp_image_list *list, const char *directory, gp_data_role role,
                         const gp_store_options *options, gp_error *err);

/* List the images in a CSV file with rows path,label (csv_list.c). */
gp_status gp_csv_list(gp_image_list *list, const char *path, gp_data_role role,
                      const gp_store_options *options, gp_error *err);

/* Hard link to an image in an archive. */
typedef struct gp_tar_link {
    uint64_t name, target; /* offsets into the text of the links */
    uint32_t place;        /* archive */
    uint32_t before;       /* number of the members that precede the link */
} gp_tar_link;

/* Images in all archives of a source. All names must be known before parts, classes and the common
 * root can be determined. */
typedef struct gp_tar_index {
    gp_image_list all;   /* members with full names, without labels */
    gp_image_list texts; /* class files */
    uint32_t place;      /* archive being read */
    /* array of gp_tar_link; resolved after all archives have been read */
    gp_buffer links;
    gp_buffer text;              /* names and targets of the links */
    const gp_progress *progress; /* NULL: no reports */
    uint64_t archive_bytes;      /* size of the archive being read; 0: unknown */
} gp_tar_index;

/* Add each archive to index->all as a place, and the members by gp_tar_walk() with
 * gp_tar_index_take(). */
typedef gp_status (*gp_tar_fill)(void *context, gp_tar_index *index, gp_error *err);

/* Read archives by `fill` and resolve the links in them. Release with gp_tar_index_close(), even
 * after a failure. */
gp_status gp_tar_index_open(gp_tar_index *index, const char *path, const gp_progress *progress,
                            gp_tar_fill fill, void *context, gp_error *err);
void gp_tar_index_close(gp_tar_index *index);

/* Add all archives in the directory, or the one file, at the path
 * `source`; a gp_tar_fill function. */
gp_status gp_tar_files_take(void *source, gp_tar_index *index, gp_error *err);

/* Return whether a path has the ending of an archive. */
bool gp_tar_is_file(const char *path);

/* Read the class file in the archive, or in the archives of the directory, at a path; otherwise
 * like gp_pixels_classes(). */
struct gp_pixel_labels;
gp_status gp_tar_pixels_classes(struct gp_pixel_labels *labels, gp_image_list *list, const char *path,
                                gp_error *err);

/* Return whether a folder contains a name. */
bool gp_tar_is_below(const char *name, const char *folder);

/* Return the length of the shared directory prefix of all names, without parts and classes. */
size_t gp_tar_root(const gp_image_list *all);

/* Return whether the archives have images with label images (pixels.c). */
bool gp_tar_has_label_images(const gp_tar_index *index);

/* List the members for a role, labelled by class folder. The caller releases the list with
 * gp_image_list_deinit(), even after a failure. */
gp_status gp_tar_index_list(gp_image_list *list, gp_tar_index *index, const char *path, gp_data_role role,
                            gp_error *err);

struct gp_tar_entry;
/* Add one archive entry to an index; a gp_tar_member callback. */
gp_status gp_tar_index_take(void *index, const struct gp_tar_entry *entry, gp_error *err);
/* List the images in a CSV text. Relative paths refer to `place`. Ownership of the text passes to
 * this function. */
gp_status gp_csv_list_text(gp_image_list *list, const char *path, const char *place, char *text, size_t bytes,
                           gp_error *err);

/* Return whether a directory contains another directory. */
bool gp_folder_is(const char *path);

/* Names below a source: on disk, in archives or in S3. Folder and file names are relative to the
 * source; "" is the source itself. */
struct gp_csv;
typedef struct gp_tree {
    const char *root; /* source name, for messages */
    void *context;
    /* Return whether a folder exists and, with `folders`, contains folders. */
    bool (*has)(void *context, const char *folder, bool folders);

    /* Add the sub-folders of a folder to out->classes, in the order of their bytes, and count its
     * files in out->others. `stamps` records the state of a directory. */
    gp_status (*folders)(void *context, gp_image_list *out, const char *folder, gp_image_list *stamps,
                         gp_error *err);

    /* Add the images below a folder to a list. */
    gp_status (*list)(void *context, gp_image_list *list, const char *folder, int32_t label,
                      const gp_store_options *options, gp_error *err);

    /* Open a CSV file. `path` is the name for messages and must outlive `csv`. GP_ENOENT, without a
     * message: no such file. */
    gp_status (*read)(void *context, struct gp_csv *csv, const char *file, const char *path, gp_error *err);
    /* Complete a list whose images and order are final; NULL: nothing to do. */
    gp_status (*finish)(void *context, gp_image_list *list, gp_error *err);
    size_t member_root; /* archives: length of each member name's prefix before the folder */
} gp_tree;

/* Names of class files; NULL at the end. */
extern const char *const gp_class_files[];

gp_tree gp_disk_tree(const char *directory);

/* Add the images in class folders, with or without parts, to an empty list. */
gp_status gp_class_folders_list(gp_image_list *list, const gp_tree *tree, gp_data_role role,
                                const gp_store_options *options, gp_error *err);

/* Open, recognize, or read the class file of images with label images at any place; see
 * gp_pixels_open() and gp_pixels_classes(). */
gp_status gp_pixels_open_at(gp_store **out, const gp_tree *place, gp_data_role role,
                            const gp_store_options *options, gp_error *err);
bool gp_pixels_is_at(const gp_tree *place);
gp_status gp_pixels_classes_at(gp_pixel_labels *labels, gp_image_list *list, const gp_tree *place,
                               gp_error *err);

/* Check that images without labels (plain_images.c) are used for prediction. GP_EINVAL: another
 * role. */
gp_status gp_plain_images_role(const char *path, gp_data_role role, gp_error *err);

/* Read a class file. The caller initializes *labels and the list. The meaning of each stored number
 * is set in *labels, and the class names are added to the list.
 *   place  class file, or a directory, archive or S3 source that contains one
 * GP_ENOENT: the source has no class file. GP_EIO: the file does not exist. */
gp_status gp_pixels_classes(gp_pixel_labels *labels, gp_image_list *list, const char *place, gp_error *err);

#endif
