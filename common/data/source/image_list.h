/* image_list.h -- which images a store has: names, labels and where their bytes are, in few bytes each.
 *
 * An image is a place and a name below it: a directory and a file in it, or an archive and a member of it.  Per image
 * that is 12 bytes and the name (24 bytes and the name in an archive). */
#ifndef GP_IMAGE_LIST_H
#define GP_IMAGE_LIST_H

#include "common/base/memory/buffer.h"
#include "common/data/store/store.h"

enum { GP_IMAGE_PLACES_MAX = 1 << 24, GP_IMAGE_NAME_BYTES_MAX = 4096 };

#define GP_IMAGE_NAMES_BYTES_MAX ((size_t)1 << 40)

typedef struct gp_image_entry {
    uint64_t name : 40; /* of its text in `text` */
    uint64_t place : 24;
} gp_image_entry;

/* A directory that was read, as it was before that. */
typedef struct gp_image_stamp {
    uint64_t path; /* of its text in `text` */
    uint64_t device, inode;
    int64_t changed_ns; /* when a name in it last changed */
} gp_image_stamp;

typedef struct gp_image_list {
    uint32_t count, capacity;
    gp_image_entry *entries;
    int32_t *labels; /* -1: none */
    uint64_t
        *offsets; /* archives only, else NULL: where the member's bytes begin in the place, and how many */
    uint32_t *sizes;
    gp_buffer text; /* names of images, places and classes, each with its NUL */
    uint64_t *places;
    uint32_t place_count, place_capacity;
    uint64_t *classes;
    uint32_t class_count, class_capacity;
    uint32_t *slots; /* hash table of classes, by gp_image_list_class_of(): class + 1, 0 is free */
    uint32_t slot_count;
    gp_image_stamp *stamps; /* what the list depends on; archives and CSV files have none */
    uint32_t stamp_count, stamp_capacity;
    struct gp_objects *objects; /* owned: the images lie in S3; NULL: in files */
    bool from_index;            /* loaded, not made */
    uint64_t others;            /* files that were passed over: not named as images */
    /* With GP_BAD_SKIP: folders that cannot be listed, classes without images, images without a label image; and what was said
     * of the first (owned; NULL: none, or no memory). */
    uint64_t left_out;
    char *left_out_first;
} gp_image_list;

void gp_image_list_init(gp_image_list *list);
void gp_image_list_deinit(gp_image_list *list);

/* Each copies its text.  GP_ELIMIT, GP_ENOMEM. */
gp_status gp_image_list_add_place(gp_image_list *list, const char *path, uint32_t *place, gp_error *err);
gp_status gp_image_list_add_class(gp_image_list *list, const char *name, gp_error *err);
gp_status gp_image_list_add(gp_image_list *list, uint32_t place, const char *name, int32_t label,
                            gp_error *err);

struct stat;
gp_status gp_image_list_add_stamp(gp_image_list *list, const char *path, const struct stat *stat,
                                  gp_error *err);

/* The same for an archive's member; a list has either files or members. */
gp_status gp_image_list_add_member(gp_image_list *list, uint32_t place, const char *name, int32_t label,
                                   uint64_t offset, uint32_t bytes, gp_error *err);

/* gp_image_list_leave_out -- log and count what is passed over, with a sentence that names it. */
void gp_image_list_leave_out(gp_image_list *list, const char *sentence);

/* Give back what was taken in advance; nothing is added after it. */
void gp_image_list_trim(gp_image_list *list);

const char *gp_image_list_place(const gp_image_list *list, uint32_t place);
const char *gp_image_list_name(const gp_image_list *list, uint32_t index);
const char *gp_image_list_class(const gp_image_list *list, uint32_t index);

/* The label of a class, -1: there is none of that name. */
int32_t gp_image_list_find_class(const gp_image_list *list, const char *name);

/* The label of a class, which is added if there is none of that name. */
gp_status gp_image_list_class_of(gp_image_list *list, const char *name, int32_t *label, gp_error *err);

/* Bring the classes into the order of their names (of their values, if all are whole numbers); labels follow. */
gp_status gp_image_list_sort_classes(gp_image_list *list, gp_error *err);

/* Whether a file of this name is taken for an image: .jpg .jpeg .jpe .jfif .png, in any case. */
bool gp_image_list_wants(const char *name);

/* The memory of all of it. */
size_t gp_image_list_bytes(const gp_image_list *list);

#endif
