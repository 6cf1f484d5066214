/* List of the images in a store: names, labels and locations, in compact form.
 *
 * An image is a place and a name below it: a directory and a file, or an archive and a member.
 * Besides the name, an image takes 12 bytes, or 24 bytes in an archive. */
#ifndef GP_IMAGE_LIST_H
#define GP_IMAGE_LIST_H

#include "common/base/memory/buffer.h"
#include "common/data/store/store.h"

enum { GP_IMAGE_PLACES_MAX = 1 << 24, GP_IMAGE_NAME_BYTES_MAX = 4096 };

#define GP_IMAGE_NAMES_BYTES_MAX ((size_t)1 << 40)

/* An image: a name below a place. */
typedef struct gp_image_entry {
    uint64_t name : 40; /* offset of the name in `text` */
    uint64_t place : 24;
} gp_image_entry;

/* State of a directory before it was listed. */
typedef struct gp_image_stamp {
    uint64_t path; /* offset of the path in `text` */
    uint64_t device, inode;
    int64_t changed_ns; /* modification time in ns */
} gp_image_stamp;

/* The list. Arrays are indexed by image, place, class or stamp number. */
typedef struct gp_image_list {
    uint32_t count;
    gp_image_entry *entries;
    int32_t *labels;   /* -1: none */
    uint64_t *offsets; /* archives only, else NULL: position and size of the member */
    uint32_t *sizes;
    gp_buffer text; /* names of images, places and classes, each with a NUL */
    char *root;     /* owned; precedes all places and stamps; NULL: "" */
    uint64_t *places;
    uint32_t place_count;
    uint64_t *classes;
    uint32_t class_count;
    uint32_t *slots; /* hash table for gp_image_list_class_of(): class + 1; 0: free */
    uint32_t slot_count;
    gp_image_stamp *stamps; /* directories that were listed; none for archives and CSV files */
    uint32_t stamp_count;
    struct gp_objects *objects; /* owned; set if the images are in S3; NULL: local files */
    bool from_index;            /* loaded from an index */
    uint64_t others;            /* files skipped because they have no image name */
    /* Number of exclusions under GP_ON_ERROR_SKIP: folders that cannot be listed, classes without
     * images, images without a label image. left_out_first describes the first (owned; NULL: none,
     * or out of memory). */
    uint64_t left_out;
    char *left_out_first;
} gp_image_list;

void gp_image_list_init(gp_image_list *list);
void gp_image_list_deinit(gp_image_list *list);

/* Add an item with a copy of the text. Errors: GP_ELIMIT, GP_ENOMEM. */
gp_status gp_image_list_add_place(gp_image_list *list, const char *path, uint32_t *place, gp_error *err);
gp_status gp_image_list_add_class(gp_image_list *list, const char *name, gp_error *err);
gp_status gp_image_list_add(gp_image_list *list, uint32_t place, const char *name, int32_t label,
                            gp_error *err);

struct stat;
gp_status gp_image_list_add_stamp(gp_image_list *list, const char *path, const struct stat *stat,
                                  gp_error *err);

/* Add an archive member. A list has either files or members. */
gp_status gp_image_list_add_member(gp_image_list *list, uint32_t place, const char *name, int32_t label,
                                   uint64_t offset, uint32_t bytes, gp_error *err);

/* Log and count an exclusion. `sentence` describes it. */
void gp_image_list_leave_out(gp_image_list *list, const char *sentence);

/* Release excess capacity. Nothing may be added afterwards. */
void gp_image_list_trim(gp_image_list *list);

/* Return the text of a place, name or class, valid until the list changes. */
const char *gp_image_list_place(const gp_image_list *list, uint32_t place);
const char *gp_image_list_name(const gp_image_list *list, uint32_t index);
const char *gp_image_list_class(const gp_image_list *list, uint32_t index);

/* Return the label of a class; -1: no such class. */
int32_t gp_image_list_find_class(const gp_image_list *list, const char *name);

/* Get the label of a class; add the class if it is new. */
gp_status gp_image_list_class_of(gp_image_list *list, const char *name, int32_t *label, gp_error *err);

/* Sort the classes by name and renumber the labels.
 *   by_value  sort by value if all names are whole numbers */
gp_status gp_image_list_sort_classes(gp_image_list *list, bool by_value, gp_error *err);

/* Return whether a file name has an image ending: .jpg .jpeg .jpe .jfif .png, in any case. */
bool gp_image_list_wants(const char *name);

/* Return the memory used by a trimmed list, in bytes. */
size_t gp_image_list_bytes(const gp_image_list *list);

#endif
