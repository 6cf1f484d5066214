/* List a directory of class folders as images.
 *
 *   SOURCE/train/CLASS/.../NAME.jpg, SOURCE/test/CLASS/...   divided into parts
 *   SOURCE/CLASS/.../NAME.jpg                                without parts
 *
 * readdir() reports the type of each entry, so no stat() per file is needed. Names are sorted by
 * bytes, and the files in a directory precede its sub-directories. Every process therefore sees the
 * same order. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/data/source/image_index.h"
#include "common/data/source/image_store.h"

enum { DEPTH_MAX = 32, ENTRIES_MAX = 1 << 30, REPORT_EACH = 1024 };

/* A name in a directory. Sorted by key, then by text. */
typedef struct folder_name {
    uint64_t key; /* the eight bytes after the prefix that all names share */
    uint32_t at;  /* offset of the name in `text` */
} folder_name;

/* Names of one kind (files or directories) in one directory. */
typedef struct name_list {
    gp_buffer text;
    folder_name *names;
    uint32_t count;
} name_list;

typedef struct folder_walk {
    gp_image_list *list;
    const gp_store_options *options;
    char path[PATH_MAX]; /* current directory */
    struct {
        dev_t device;
        ino_t inode;
    } above[DEPTH_MAX]; /* ancestors of the current directory, and itself */
    int depth;
    /* class folders listed so far; total, 0: the source has none */
    uint32_t class_done, class_count;
} folder_walk;

static void name_list_init(name_list *list)
{
    *list = (name_list){ 0 };
    gp_buffer_init(&list->text, UINT32_MAX - 1);
}

static void name_list_deinit(name_list *list)
{
    gp_buffer_deinit(&list->text);
    gp_free(list->names);
}

static const char *name_text(const name_list *list, uint32_t index)
{
    return (const char *)list->text.data + list->names[index].at;
}

static gp_status name_list_add(name_list *list, const char *name, gp_error *err)
{
    size_t at = list->text.bytes;
    gp_status status;

    folder_name *grown =
        list->count >= ENTRIES_MAX ? NULL : gp_array_grow(list->names, list->count, sizeof(*grown));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a directory of %u names", list->count);
    list->names = grown;
    status = gp_buffer_append(&list->text, name, strlen(name) + 1, err);
    if (status == GP_OK)
        list->names[list->count++].at = (uint32_t)at;
    return status;
}

static int name_compare(const void *left, const void *right, void *text)
{
    const folder_name *a = left, *b = right;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return strcmp((const char *)text + a->at, (const char *)text + b->at);
}

/* Sort names by bytes. Most comparisons use an integer key: the eight bytes after the common
 * prefix. */
static void name_list_sort(name_list *list)
{
    size_t common = list->count == 0 ? 0 : strlen(name_text(list, 0));

    for (uint32_t i = 1; i < list->count; i++) {
        const char *first = name_text(list, 0), *name = name_text(list, i);
        size_t same = 0;

        while (same < common && name[same] == first[same])
            same++;
        common = same;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const unsigned char *at = (const unsigned char *)name_text(list, i) + common;
        uint64_t key = 0;

        for (int k = 0; k < 8; k++) {
            key = key << 8 | *at;
            at += *at != '\0';
        }
        list->names[i].key = key;
    }
    if (list->count > 1)
        qsort_r(list->names, list->count, sizeof(*list->names), name_compare, list->text.data);
}

/* Return an entry's type, following links. Call stat only if readdir() does not report the type. */
static unsigned char entry_type(int fd, const struct dirent *entry)
{
    struct stat stat_;

    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type;
    if (fstatat(fd, entry->d_name, &stat_, 0) != 0)
        return DT_UNKNOWN; /* dangling link */
    return S_ISDIR(stat_.st_mode) ? DT_DIR : S_ISREG(stat_.st_mode) ? DT_REG : DT_UNKNOWN;
}

/* Report progress, in class folders if there are several (their total is known), else in files.
 * names: entries read in the current directory. */
static void walk_report(const folder_walk *walk, uint32_t names)
{
    if (walk->class_count > 1)
        gp_progress_report(walk->options->progress, "listing", "class folders", walk->class_done,
                           walk->class_count);
    else
        gp_progress_report(walk->options->progress, "listing", "files", (uint64_t)walk->list->count + names,
                           0);
}

/* Read the images and sub-directories in a directory, each sorted.
 *   files    set to the images; NULL: count images as others
 *   folders  set to the sub-directories
 *   others   incremented for each other entry
 *   walk     receives progress; NULL: no reports */
static gp_status directory_read(DIR *directory, const char *path, name_list *files, name_list *folders,
                                uint64_t *others, const folder_walk *walk, gp_error *err)
{
    struct dirent *entry;
    gp_status status = GP_OK;

    for (errno = 0; status == GP_OK && (entry = readdir(directory)) != NULL; errno = 0) {
        unsigned char type;

        if (entry->d_name[0] == '.')
            continue;
        type = entry_type(dirfd(directory), entry);
        if (type == DT_DIR)
            status = name_list_add(folders, entry->d_name, err);
        else if (files != NULL && type == DT_REG && gp_image_list_wants(entry->d_name))
            status = name_list_add(files, entry->d_name, err);
        else
            (*others)++;
        if (walk != NULL && files != NULL && type == DT_REG && files->count % REPORT_EACH == 0)
            walk_report(walk, files->count);
    }
    if (status == GP_OK && errno != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot list %s", path);
    name_list_sort(folders);
    if (files != NULL)
        name_list_sort(files);
    return status;
}

/* Return the part of a path that the list stores. */
static const char *below_root(const gp_image_list *list, const char *path)
{
    return path + (list->root == NULL ? 0 : strlen(list->root));
}

/* Read the sub-directories of a path. */
static gp_status folders_read(gp_image_list *list, name_list *folders, const char *path, uint64_t *others,
                              gp_error *err)
{
    DIR *directory = opendir(path);
    struct stat stat_;
    gp_status status;

    if (directory == NULL)
        return gp_fail_errno(err,
                             errno == ENOENT   ? GP_ENOENT
                             : errno == EACCES ? GP_EPERM
                                               : GP_EIO,
                             "cannot list %s", path);
    if (fstat(dirfd(directory), &stat_) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot list %s", path);
    else
        status = gp_image_list_add_stamp(list, below_root(list, path), &stat_, err);
    if (status == GP_OK)
        status = directory_read(directory, path, NULL, folders, others, NULL, err);
    closedir(directory);
    return status;
}

/* Handle a folder that cannot be listed: log and skip it under GP_BAD_SKIP, else return the
 * error. */
static gp_status folder_bad(const folder_walk *walk, gp_status status, gp_error *err)
{
    if (walk->options->on_error != GP_BAD_SKIP)
        return status;
    gp_image_list_leave_out(walk->list, err->message);
    return GP_OK;
}

/* Open walk->path and make it the current directory. GP_ECORRUPT: a link leads back to an
 * ancestor. */
static gp_status folder_enter(folder_walk *walk, DIR **out, gp_error *err)
{
    struct stat stat_;
    DIR *directory;

    if (walk->depth == DEPTH_MAX)
        return gp_fail(err, GP_ELIMIT, "%s is more than %d directories deep", walk->path, DEPTH_MAX);
    directory = opendir(walk->path);
    if (directory == NULL || fstat(dirfd(directory), &stat_) != 0) {
        gp_status status =
            gp_fail_errno(err, errno == EACCES ? GP_EPERM : GP_EIO, "cannot list %s", walk->path);

        if (directory != NULL)
            closedir(directory);
        return status;
    }
    for (int i = 0; i < walk->depth; i++)
        if (walk->above[i].device == stat_.st_dev && walk->above[i].inode == stat_.st_ino) {
            closedir(directory);
            return gp_fail(err, GP_ECORRUPT,
                           "%s is a link to a directory that it is in: the images would never end; remove it",
                           walk->path);
        }
    gp_status status = gp_image_list_add_stamp(walk->list, below_root(walk->list, walk->path), &stat_, err);

    if (status != GP_OK) {
        closedir(directory);
        return status;
    }
    walk->above[walk->depth].device = stat_.st_dev;
    walk->above[walk->depth].inode = stat_.st_ino;
    walk->depth++;
    *out = directory;
    return GP_OK;
}

static gp_status walk_folder(folder_walk *walk, int32_t label, gp_error *err);

static gp_status walk_folders(folder_walk *walk, const name_list *folders, int32_t label, gp_error *err)
{
    size_t length = strlen(walk->path);
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < folders->count && status == GP_OK; i++) {
        const char *name = name_text(folders, i);

        if (length + 1 + strlen(name) >= sizeof(walk->path))
            return gp_fail(err, GP_ELIMIT, "the path %.200s.../%.100s is too long", walk->path, name);
        sprintf(walk->path + length, "/%s", name);
        status = walk_folder(walk, label, err);
        walk->path[length] = '\0';
    }
    return status;
}

/* Add all images below walk->path with one label. */
static gp_status walk_folder(folder_walk *walk, int32_t label, gp_error *err)
{
    name_list files, folders;
    gp_error own;
    gp_error *told = err != NULL ? err : &own;
    uint32_t place;
    DIR *directory;
    gp_status status = folder_enter(walk, &directory, told);

    if (status != GP_OK)
        return folder_bad(walk, status, told);
    name_list_init(&files);
    name_list_init(&folders);
    status = directory_read(directory, walk->path, &files, &folders, &walk->list->others, walk, err);
    closedir(directory);
    if (status == GP_OK && files.count > 0)
        status = gp_image_list_add_place(walk->list, below_root(walk->list, walk->path), &place, err);
    for (uint32_t i = 0; i < files.count && status == GP_OK; i++)
        status = gp_image_list_add(walk->list, place, name_text(&files, i), label, err);
    name_list_deinit(&files);
    if (status == GP_OK)
        status = walk_folders(walk, &folders, label, err);
    name_list_deinit(&folders);
    walk->depth--;
    return status;
}

/* ---- parts ---- */

static const char *const train_names[] = { "train", NULL };
static const char *const test_names[] = { "test", "val", "validation", "valid", NULL };
/* Candidates for validation during training; the test part is kept for the end. */
static const char *const validation_names[] = { "val", "validation", "valid", "test", NULL };

/* Return the first of `names` that is among the folders; NULL: none. */
static const char *part_find(const name_list *folders, const char *const *names)
{
    for (; *names != NULL; names++)
        for (uint32_t i = 0; i < folders->count; i++)
            if (strcmp(name_text(folders, i), *names) == 0)
                return *names;
    return NULL;
}

static bool name_is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Return whether a source is divided into parts: all folders have part names and contain folders.
 * Otherwise the folders are classes. */
static bool is_divided(const char *directory, const name_list *folders)
{
    for (uint32_t i = 0; i < folders->count; i++) {
        char path[PATH_MAX];
        const char *name = name_text(folders, i);

        if (!name_is_one_of(name, train_names) && !name_is_one_of(name, test_names))
            return false;
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path) ||
            !gp_folder_is(path))
            return false;
    }
    return folders->count > 0;
}

/* Choose the directory for a role, part[0], and the one that defines the classes, part[1]. The
 * training part defines them if it exists, so that a network trained on one part fits the other. */
static gp_status parts_decide(char part[2][PATH_MAX], const char *directory, gp_data_role role,
                              const name_list *folders, gp_error *err)
{
    const char *train = NULL, *test = NULL, *wanted;

    if (is_divided(directory, folders)) {
        train = part_find(folders, train_names);
        test = part_find(folders, role == GP_DATA_TEST ? validation_names : test_names);
    } else if (role == GP_DATA_TEST) {
        return gp_fail(err, GP_ENOENT,
                       "%s has no test images: there are no train/ and test/ (or val/) in it; `gradpool data "
                       "split` makes two parts of it",
                       directory);
    } else {
        strcpy(part[0], directory);
        strcpy(part[1], directory);
        return GP_OK;
    }
    wanted = role == GP_DATA_TRAIN || (role == GP_DATA_GIVEN && test == NULL) ? train : test;
    if (wanted == NULL)
        return gp_fail(err, GP_ENOENT, "%s has no %s images: there is no %s/ in it", directory,
                       role == GP_DATA_TRAIN ? "training" : "test", role == GP_DATA_TRAIN ? "train" : "test");
    if ((size_t)snprintf(part[0], PATH_MAX, "%s/%s", directory, wanted) >= PATH_MAX ||
        (size_t)snprintf(part[1], PATH_MAX, "%s/%s", directory, train != NULL ? train : wanted) >= PATH_MAX)
        return gp_fail(err, GP_ELIMIT, "the path %.200s... is too long", directory);
    return GP_OK;
}

/* ---- listing ---- */

static gp_status class_empty(folder_walk *walk, uint32_t class, gp_error *err)
{
    gp_error said;

    if (walk->options->on_error != GP_BAD_SKIP)
        return gp_fail(err, GP_ECORRUPT,
                       "class %s has no images: there is no .jpg or .png below %s/%s; fill it or remove it",
                       gp_image_list_class(walk->list, class), walk->path,
                       gp_image_list_class(walk->list, class));
    gp_fail(&said, GP_ECORRUPT, "class %s has no images in %s", gp_image_list_class(walk->list, class),
            walk->path);
    gp_image_list_leave_out(walk->list, said.message);
    return GP_OK;
}

/* List the class folders of walk->path in order. A folder that is not a known class is an error. A
 * class without images is an error only if the classes come from these folders. */
static gp_status walk_classes(folder_walk *walk, const name_list *folders, bool names_are_ours, gp_error *err)
{
    size_t length = strlen(walk->path);
    gp_status status = GP_OK;

    walk->class_count = folders->count;
    for (uint32_t i = 0; i < folders->count && status == GP_OK; i++) {
        const char *name = name_text(folders, i);
        int32_t label = gp_image_list_find_class(walk->list, name);
        uint32_t before = walk->list->count;

        if (label < 0)
            return gp_fail(err, GP_ECORRUPT, "%s/%s: there is no class of that name in the training images",
                           walk->path, name);
        if (length + 1 + strlen(name) >= sizeof(walk->path))
            return gp_fail(err, GP_ELIMIT, "the path %.200s.../%.100s is too long", walk->path, name);
        sprintf(walk->path + length, "/%s", name);
        status = walk_folder(walk, label, err);
        walk->path[length] = '\0';
        if (status == GP_OK && walk->list->count == before && names_are_ours)
            status = class_empty(walk, (uint32_t)label, err);
        walk->class_done++;
        walk_report(walk, 0);
    }
    return status;
}

static gp_status classes_add(gp_image_list *list, const name_list *folders, const char *path, gp_error *err)
{
    gp_status status = GP_OK;

    if (folders->count == 0)
        return gp_fail(err, GP_ENOENT,
                       "%s has no class folders; images are looked for as %s/CLASS/NAME.jpg or .png", path,
                       path);
    for (uint32_t i = 0; i < folders->count && status == GP_OK; i++)
        status = gp_image_list_add_class(list, name_text(folders, i), err);
    return status;
}

/* Return whether a directory has class folders. If it also has IDX files, it is an IDX data set. */
bool gp_class_folders_are(const char *path)
{
    return !gp_store_is_idx(path) && gp_folder_is(path);
}

bool gp_folder_is(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    bool found = false;

    if (directory ==
        /* if the directory cannot be opened, assume folders: listing it will report the error */
        NULL)
        return errno != ENOENT && errno != ENOTDIR;
    while (!found && (entry = readdir(directory)) != NULL)
        found = entry->d_name[0] != '.' && entry_type(dirfd(directory), entry) == DT_DIR;
    closedir(directory);
    return found;
}

gp_status gp_folder_list_all(gp_image_list *list, const char *directory, const gp_store_options *options,
                             gp_error *err)
{
    folder_walk *walk = gp_calloc(1, sizeof(*walk));
    gp_status status;

    gp_image_list_init(list);
    if (walk == NULL || strlen(directory) >= sizeof(walk->path)) {
        gp_free(walk);
        return gp_fail(err, GP_ENOMEM, "no memory to list %s", directory);
    }
    walk->list = list;
    walk->options = options;
    strcpy(walk->path, directory);
    status = walk_folder(walk, -1, err);
    gp_free(walk);
    return status;
}

/* Read the directories and create the list. */
static gp_status list_make(gp_image_list *list, const char *directory, gp_data_role role,
                           const gp_store_options *options, gp_error *err)
{
    /* folders of: the source, this part, the part that defines the classes */
    enum { TOP, OURS, NAMES, LISTS };
    char part[2][PATH_MAX];
    name_list folders[LISTS];
    folder_walk *walk = gp_calloc(1, sizeof(*walk));
    gp_status status;
    uint64_t ignored = 0;

    gp_image_list_init(list);
    list->root = gp_strdup(directory);
    if (walk == NULL || list->root == NULL) {
        gp_free(walk);
        return gp_fail(err, GP_ENOMEM, "no memory to list %s", directory);
    }
    for (int i = 0; i < LISTS; i++)
        name_list_init(&folders[i]);
    walk->list = list;
    walk->options = options;
    status = folders_read(list, &folders[TOP], directory, &ignored, err);
    if (status == GP_OK)
        status = parts_decide(part, directory, role, &folders[TOP], err);
    if (status == GP_OK)
        status = folders_read(list, &folders[OURS], part[0], &list->others, err);
    if (status == GP_OK)
        status = folders_read(list, &folders[NAMES], part[1], &ignored, err);
    if (status == GP_OK)
        status = classes_add(list, &folders[NAMES], part[1], err);
    if (status == GP_OK) {
        strcpy(walk->path, part[0]);
        status = walk_classes(walk, &folders[OURS], strcmp(part[0], part[1]) == 0, err);
    }
    if (status == GP_OK && list->count == 0)
        status = gp_fail(err, GP_ENOENT, "there is no .jpg or .png in the class folders of %s", part[0]);
    for (int i = 0; i < LISTS; i++)
        name_list_deinit(&folders[i]);
    gp_free(walk);
    gp_image_list_trim(list);
    return status;
}

gp_status gp_folder_list(gp_image_list *list, const char *directory, gp_data_role role,
                         const gp_store_options *options, gp_error *err)
{
    gp_status status;

    if (gp_image_index_load(list, directory, role))
        return GP_OK;
    status = list_make(list, directory, role, options, err);
    if (status == GP_OK)
        gp_image_index_save(list, directory, role);
    return status;
}
