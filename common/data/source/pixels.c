/* Images with a class for each pixel: two directories, with images and label images paired by name.
 *
 *   images              labels              parts
 *   SOURCE/PART         SOURCE/PARTannot    train, val, test
 *   SOURCE/PART         SOURCE/PART_labels
 *   SOURCE/PART/images  SOURCE/PART/labels
 *   SOURCE/images/PART  SOURCE/labels/PART
 *   SOURCE/images       SOURCE/labels       none: everything is for training
 *
 * The directories may also be in tar archives (tar_store.c) or in S3 (s3_list.c).
 *
 * The numbers in a label PNG (palette or grey) are line numbers in SOURCE/classes.csv, from 0. A
 * label PNG may also be in colour, with the colours in that file. Each line has the form
 * name[,red,green,blue]. Lines named void, ignore or unlabelled are not classes: their pixels are
 * ignored, as is the number 255. The other lines are the classes, in order. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/data/format/csv.h"
#include "common/data/source/image_store.h"
#include "common/data/source/objects.h"
#include "common/data/s3/s3_source.h"

typedef struct layout {
    const char *images, *labels; /* paths below SOURCE; %s stands for the part */
} layout;

static const layout divided[] = {
    { "%s", "%sannot" },
    { "%s", "%s_labels" },
    { "%s/images", "%s/labels" },
    { "images/%s", "labels/%s" },
};
static const layout whole = { "images", "labels" };

static const char *const part_order[][5] = {
    [GP_DATA_TRAIN] = { "train", NULL },
    [GP_DATA_TEST] = { "val", "validation", "valid", "test", NULL },
    [GP_DATA_GIVEN] = { "test", "val", "validation", "valid", "train" },
};

/* Suffixes of label image names: image NAME.jpg has the label image NAME.png, with one of these
 * before the dot. */
static const char *const label_endings[] = { "", "_L", "_mask", "_label", "_labels", NULL };

const char *const gp_class_files[] = { "classes.csv", "class_dict.csv", "classes.txt", NULL };

/* CamVid as distributed by the SegNet authors (Badrinarayanan et al., 2017) has no class file. */
static const char camvid_classes[] =
    "Sky,128,128,128\nBuilding,128,0,0\nPole,192,192,128\nRoad,128,64,128\nPavement,60,40,222\n"
    "Tree,128,128,0\nSignSymbol,192,128,128\nFence,64,64,128\nCar,64,0,128\nPedestrian,64,64,0\n"
    "Bicyclist,0,128,192\nVoid,0,0,0\n";

/* ---- directories ---- */

enum { FOLDER_BYTES = 64 };

/* Format a folder name. `format` comes from the tables above. */
static void folder_format(char folder[FOLDER_BYTES], const char *format, const char *part)
{
    snprintf(folder, FOLDER_BYTES, format, part);
}

/* Format a part's two folder names, and return whether both folders exist. */
static bool part_is(char images[FOLDER_BYTES], char labels[FOLDER_BYTES], const gp_tree *place,
                    const layout *l, const char *part)
{
    folder_format(images, l->images, part);
    folder_format(labels, l->labels, part);
    return place->has(place->context, images, false) && place->has(place->context, labels, false);
}

/* Return a place's layout; NULL: none matches. One part is enough to recognize a layout. */
static const layout *layout_find(const gp_tree *place)
{
    char images[FOLDER_BYTES], labels[FOLDER_BYTES];

    for (size_t i = 0; i < sizeof(divided) / sizeof(divided[0]); i++)
        for (int k = 0; k < 5; k++)
            if (part_is(images, labels, place, &divided[i], part_order[GP_DATA_GIVEN][k]))
                return &divided[i];
    return part_is(images, labels, place, &whole, "") ? &whole : NULL;
}

bool gp_pixels_is_at(const gp_tree *place)
{
    return layout_find(place) != NULL;
}

static gp_status part_find(char images[FOLDER_BYTES], char labels[FOLDER_BYTES], const gp_tree *place,
                           gp_data_role role, gp_error *err)
{
    const layout *l = layout_find(place);

    if (l == &whole && role != GP_DATA_TEST && part_is(images, labels, place, l, ""))
        return GP_OK;
    for (int k = 0; l != NULL && l != &whole && k < 5 && part_order[role][k] != NULL; k++)
        if (part_is(images, labels, place, l, part_order[role][k]))
            return GP_OK;
    return gp_fail(err, GP_ENOENT, "%s has no %s images with label images", place->root,
                   role == GP_DATA_TRAIN ? "training" : "test");
}

bool gp_pixels_is(const char *directory)
{
    const gp_tree place = gp_disk_tree(directory);

    return gp_pixels_is_at(&place);
}

/* ---- classes ---- */

static bool is_void(const char *name)
{
    static const char *const names[] = { "void", "ignore", "ignored", "unlabelled", "unlabeled" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Parse the three numbers of a colour. Return false if one is malformed or above 255. */
static bool colour_parse(uint8_t colour[3], char *const fields[3])
{
    for (int i = 0; i < 3; i++) {
        char *end;
        long value = strtol(fields[i], &end, 10);

        while (*end == ' ')
            end++;
        if (end == fields[i] || *end != '\0' || value < 0 || value > 255)
            return false;
        colour[i] = (uint8_t)value;
    }
    return true;
}

/* Process one line of a class file: a number in label images, and a class unless the line is
 * void. */
static gp_status class_take(gp_pixel_labels *labels, gp_image_list *list, const gp_csv *csv,
                            const gp_csv_row *row, gp_error *err)
{
    uint32_t value = labels->value_count;
    bool colour = row->count == 4 && colour_parse(labels->colours[value], row->fields + 1);

    if (row->first && row->count > 1 && strpbrk(row->fields[1], "0123456789") == NULL)
        return GP_OK; /* column names */
    if (row->count != 1 && !colour)
        return gp_fail(err, GP_ECORRUPT, "%s: line %u must be name or name,red,green,blue (0 to 255 each)",
                       csv->name, row->line);
    if (value > 0 && colour != labels->coloured)
        return gp_fail(err, GP_ECORRUPT, "%s: line %u has %s color, unlike the lines before", csv->name,
                       row->line, colour ? "a" : "no");
    if (value == GP_PIXEL_CLASSES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has more than %d lines", csv->name, GP_PIXEL_CLASSES_MAX);
    labels->coloured = colour;
    labels->value_count++;
    labels->meaning[value] = GP_PIXEL_NONE;
    if (is_void(row->fields[0]))
        return GP_OK;
    labels->meaning[value] = (uint8_t)list->class_count;
    return gp_image_list_add_class(list, row->fields[0], err);
}

/* Return whether the last component of a path, with links resolved, is camvid or camvid.tar. */
static bool is_camvid(const char *root)
{
    char *real = realpath(root, NULL);
    const char *path = real != NULL ? real : root, *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const bool is = strcasecmp(name, "camvid") == 0 || strcasecmp(name, "camvid.tar") == 0;

    free(real);
    return is;
}

/* Open a place's class file. The name for messages is stored in `path`. GP_ENOENT, without a
 * message: there is none. */
static gp_status classes_find(gp_csv *csv, char path[PATH_MAX], const gp_tree *place, gp_error *err)
{
    const char *const *names = gp_class_files;
    gp_status status = GP_ENOENT;

    for (size_t i = 0; names[i] != NULL && status == GP_ENOENT; i++)
        status = (size_t)snprintf(path, PATH_MAX, "%s/%s", place->root, names[i]) < PATH_MAX
                     ? place->read(place->context, csv, names[i], path, err)
                     : GP_ENOENT;
    if (status == GP_ENOENT && is_camvid(place->root)) {
        char *text = gp_strdup(camvid_classes);

        strcpy(path, "CamVid");
        if (text == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the classes of %s", place->root);
        gp_csv_init(csv, path, text, sizeof(camvid_classes) - 1);
        status = GP_OK;
    }
    return status;
}

/* Read the classes from an open file, then close the file. `path` is the name for messages. */
static gp_status classes_keep(gp_pixel_labels *labels, gp_image_list *list, gp_csv *csv, const char *path,
                              gp_error *err)
{
    gp_csv_row row;
    gp_status status;

    while ((status = gp_csv_next(csv, &row, err)) == GP_OK && row.count > 0 &&
           (status = class_take(labels, list, csv, &row, err)) == GP_OK)
        ;
    if (status == GP_OK && list->class_count == 0)
        status = gp_fail(err, GP_ECORRUPT, "%s has no class names", csv->name);
    gp_csv_close(csv);
    labels->classes_path = gp_strdup(path);
    if (status == GP_OK && labels->classes_path == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the classes of %s", path);
    return status;
}

gp_status gp_pixels_classes_at(gp_pixel_labels *labels, gp_image_list *list, const gp_tree *place,
                               gp_error *err)
{
    char path[PATH_MAX] = "";
    gp_csv csv;
    gp_status status = classes_find(&csv, path, place, err);

    return status == GP_OK ? classes_keep(labels, list, &csv, path, err) : status;
}

gp_status gp_pixels_classes(gp_pixel_labels *labels, gp_image_list *list, const char *path, gp_error *err)
{
    const gp_tree place = gp_disk_tree(path);
    struct stat stat_;
    gp_csv csv;
    gp_status status;

    if (gp_s3_is(path))
        return gp_s3_pixels_classes(labels, list, path, err);
    if (gp_tar_is_file(path))
        return gp_tar_pixels_classes(labels, list, path, err);
    if (stat(path, &stat_) == 0 && S_ISDIR(stat_.st_mode)) {
        status = gp_pixels_classes_at(labels, list, &place, err);
        return status == GP_ENOENT && gp_tar_is(path) ? gp_tar_pixels_classes(labels, list, path, err)
                                                      : status;
    }
    status = gp_csv_open(&csv, path, err);
    if (status == GP_ENOENT)
        return gp_fail(err, GP_EIO, "the class file %s does not exist", path);
    return status == GP_OK ? classes_keep(labels, list, &csv, path, err) : status;
}

/* ---- pairing ---- */

/* Copy an image path without directory prefix and ending. root: prefix length, in the place or in
 * an archive member's name. */
static void stem_copy(char stem[PATH_MAX], const gp_image_list *list, uint32_t index, size_t root)
{
    const char *name = gp_image_list_name(list, index), *dot = strrchr(name, '.');

    if (list->offsets != NULL)
        snprintf(stem, PATH_MAX, "%.*s", (int)(dot - name - (ptrdiff_t)root), name + root);
    else
        snprintf(stem, PATH_MAX, "%s/%.*s", gp_image_list_place(list, list->entries[index].place) + root,
                 (int)(dot - name), name);
}

typedef struct pair_search {
    const gp_image_list *list; /* label images */
    size_t root;
    uint32_t *order; /* [list->count]: label image indices, sorted by stem */
    char stem[2][PATH_MAX];
} pair_search;

static int pair_compare(const void *left, const void *right, void *context)
{
    pair_search *search = context;

    stem_copy(search->stem[0], search->list, *(const uint32_t *)left, search->root);
    stem_copy(search->stem[1], search->list, *(const uint32_t *)right, search->root);
    return strcmp(search->stem[0], search->stem[1]);
}

/* Return the label image index for a stem; UINT32_MAX: there is none. */
static uint32_t label_find(pair_search *search, const char *stem)
{
    char wanted[PATH_MAX];

    for (const char *const *ending = label_endings; *ending != NULL; ending++) {
        uint32_t low = 0, high = search->list->count;

        if ((size_t)snprintf(wanted, sizeof(wanted), "%s%s", stem, *ending) >= sizeof(wanted))
            return UINT32_MAX;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            int order;

            stem_copy(search->stem[0], search->list, search->order[middle], search->root);
            order = strcmp(wanted, search->stem[0]);
            if (order == 0)
                return search->order[middle];
            if (order < 0)
                high = middle;
            else
                low = middle + 1;
        }
    }
    return UINT32_MAX;
}

/* Replace an array by the items with the given indices; NULL stays. */
static gp_status array_pick(void **items, size_t bytes, const uint32_t *index, uint32_t count, gp_error *err)
{
    uint8_t *picked = *items == NULL ? NULL : gp_calloc((size_t)count + 1, bytes);

    if (*items == NULL)
        return GP_OK;
    if (picked == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u images", count);
    for (uint32_t i = 0; i < count; i++)
        memcpy(picked + i * bytes, (const uint8_t *)*items + index[i] * bytes, bytes);
    gp_free(*items);
    *items = picked;
    return GP_OK;
}

/* Reduce a list to the images with the given indices, in that order. Indices may repeat. */
static gp_status images_keep(gp_image_list *list, const uint32_t *index, uint32_t count, gp_error *err)
{
    gp_status status = array_pick((void **)&list->entries, sizeof(*list->entries), index, count, err);

    if (status == GP_OK)
        status = array_pick((void **)&list->labels, sizeof(*list->labels), index, count, err);
    if (status == GP_OK)
        status = array_pick((void **)&list->offsets, sizeof(*list->offsets), index, count, err);
    if (status == GP_OK)
        status = array_pick((void **)&list->sizes, sizeof(*list->sizes), index, count, err);
    list->count = count;
    return status;
}

/* Find pairs: set `kept` to the indices of images, and `paired` to those of their label images. An
 * image without a label image is an error, or excluded under GP_ON_ERROR_SKIP. */
static gp_status pairs_find(gp_image_list *images, pair_search *search, size_t images_root, uint32_t *kept,
                            uint32_t *paired, uint32_t *count, const gp_store_options *options, gp_error *err)
{
    const gp_image_list *labels = search->list;
    char stem[PATH_MAX];
    gp_error said;

    for (uint32_t i = 0; i < labels->count; i++)
        search->order[i] = i;
    if (labels->count > 1)
        qsort_r(search->order, labels->count, sizeof(*search->order), pair_compare, search);
    for (uint32_t i = 0; i < images->count; i++) {
        const char *place = gp_image_list_place(images, images->entries[i].place);

        stem_copy(stem, images, i, images_root);
        const uint32_t label = label_find(search, stem);

        if (label != UINT32_MAX) {
            kept[*count] = i;
            paired[(*count)++] = label;
        } else if (options->on_error == GP_ON_ERROR_SKIP) {
            gp_fail(&said, GP_ENOENT, "%s/%s has no label image", place, gp_image_list_name(images, i));
            gp_image_list_leave_out(images, said.message);
            images->others++;
        } else {
            return gp_fail(err, GP_ENOENT, "%s/%s has no label image; it must have the same name in %s",
                           place, gp_image_list_name(images, i),
                           labels->count == 0 ? "a directory without label images"
                                              : gp_image_list_place(labels, 0));
        }
    }
    return GP_OK;
}

/* Reorder the label images to match the images, and remove images without one. */
static gp_status pairs_make(gp_image_list *images, gp_image_list *labels, size_t images_root,
                            size_t labels_root, const gp_store_options *options, gp_error *err)
{
    pair_search *search = gp_calloc(1, sizeof(*search));
    uint32_t *order = gp_calloc((size_t)labels->count + 1, sizeof(*order));
    uint32_t *kept = gp_calloc((size_t)images->count + 1, 2 * sizeof(*kept)), count = 0;
    gp_status status = GP_OK;

    if (search == NULL || order == NULL || kept == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for %u pairs of images", images->count);
    if (status == GP_OK) {
        uint32_t *paired = kept + images->count + 1;

        *search = (pair_search){ .list = labels, .root = labels_root, .order = order };
        status = pairs_find(images, search, images_root, kept, paired, &count, options, err);
        if (status == GP_OK)
            status = images_keep(images, kept, count, err);
        if (status == GP_OK)
            status = images_keep(labels, paired, count, err);
    }
    gp_free(search);
    gp_free(order);
    gp_free(kept);
    return status;
}

gp_status gp_pixels_open_at(gp_store **out, const gp_tree *place, gp_data_role role,
                            const gp_store_options *options, gp_error *err)
{
    size_t root = strlen(place->root) + 1;
    char images[FOLDER_BYTES], label_images[FOLDER_BYTES];
    gp_image_list list;
    gp_pixel_labels labels = { 0 };
    gp_status status;

    gp_image_list_init(&list);
    gp_image_list_init(&labels.list);
    status = part_find(images, label_images, place, role, err);
    if (status == GP_OK)
        status = place->list(place->context, &list, images, -1, options, err);
    if (status == GP_OK)
        status = place->list(place->context, &labels.list, label_images, -1, options, err);
    if (status == GP_OK) {
        status = gp_pixels_classes_at(&labels, &list, place, err);
        if (status == GP_ENOENT)
            status = gp_fail(err, GP_ENOENT,
                             "%s has pixel labels, but no classes.csv; write one line per class from 0: name "
                             "or name,red,green,blue; a line with the name void is ignored",
                             place->root);
    }
    if (status == GP_OK && list.offsets != NULL)
        root = place->member_root;
    if (status == GP_OK)
        status =
            pairs_make(&list, &labels.list, root + strlen(images), root + strlen(label_images), options, err);
    if (status == GP_OK && list.count == 0)
        status =
            gp_fail(err, GP_ENOENT, "%s/%s has no .jpg or .png file with a label image", place->root, images);
    if (status == GP_OK && place->finish != NULL)
        status = place->finish(place->context, &list, err);
    if (status == GP_OK && place->finish != NULL)
        status = place->finish(place->context, &labels.list, err);
    return gp_image_store_open(out, "pixels", place->root, &list, &labels, options, status, err);
}

gp_status gp_pixels_open(gp_store **out, const char *directory, gp_data_role role,
                         const gp_store_options *options, gp_error *err)
{
    const gp_tree place = gp_disk_tree(directory);

    return gp_pixels_open_at(out, &place, role, options, err);
}
