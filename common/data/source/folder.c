/* List class folders as images, on disk or in another tree of names (s3_list.c).
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
#include "common/data/format/csv.h"
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
    int32_t label;       /* label for all images */
    char path[PATH_MAX]; /* current directory */
    struct {
        dev_t device;
        ino_t inode;
    } above[DEPTH_MAX]; /* ancestors of the current directory, and itself */
    int depth;
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

/* Read the images and sub-directories in a directory, each sorted.
 *   files    set to the images; NULL: count images as others
 *   folders  set to the sub-directories
 *   others   incremented for each other entry
 *   walk     receives progress; may be NULL if `files` is */
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
        if (files != NULL && type == DT_REG && files->count % REPORT_EACH == 0)
            gp_progress_report(walk->options->progress, "listing", "files",
                               (uint64_t)walk->list->count + files->count, 0);
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

/* Open walk->path and make it the current directory. GP_ECORRUPT: a link leads back to an
 * ancestor. */
static gp_status folder_enter(folder_walk *walk, DIR **out, gp_error *err)
{
    struct stat stat_;
    DIR *directory;

    if (walk->depth == DEPTH_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has more than %d levels of directories", walk->path, DEPTH_MAX);
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
                           "%s is a symbolic link to one of its parents, which is an endless loop; remove it",
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

/* Add all images below walk->path. Under GP_ON_ERROR_SKIP a folder that cannot
 * be listed is logged and skipped. */
static gp_status walk_folder(folder_walk *walk, gp_error *err)
{
    const size_t length = strlen(walk->path);
    name_list files, folders;
    gp_error own;
    gp_error *reported = err != NULL ? err : &own;
    uint32_t place;
    DIR *directory;
    gp_status status = folder_enter(walk, &directory, reported);

    if (status != GP_OK && walk->options->on_error == GP_ON_ERROR_SKIP)
        gp_image_list_leave_out(walk->list, reported->message);
    if (status != GP_OK)
        return walk->options->on_error == GP_ON_ERROR_SKIP ? GP_OK : status;
    name_list_init(&files);
    name_list_init(&folders);
    status = directory_read(directory, walk->path, &files, &folders, &walk->list->others, walk, err);
    closedir(directory);
    if (status == GP_OK && files.count > 0)
        status = gp_image_list_add_place(walk->list, below_root(walk->list, walk->path), &place, err);
    for (uint32_t i = 0; i < files.count && status == GP_OK; i++)
        status = gp_image_list_add(walk->list, place, name_text(&files, i), walk->label, err);
    name_list_deinit(&files);
    for (uint32_t i = 0; i < folders.count && status == GP_OK; i++) {
        const char *name = name_text(&folders, i);

        if (length + 1 + strlen(name) >= sizeof(walk->path))
            status = gp_fail(err, GP_ELIMIT, "the path %.200s.../%.100s is too long", walk->path, name);
        else {
            sprintf(walk->path + length, "/%s", name);
            status = walk_folder(walk, err);
            walk->path[length] = '\0';
        }
    }
    name_list_deinit(&folders);
    walk->depth--;
    return status;
}

/* ---- on disk ---- */

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

    /* if the directory cannot be opened, assume folders: listing it will report the error */
    if (directory == NULL)
        return errno != ENOENT && errno != ENOTDIR;
    while (!found && (entry = readdir(directory)) != NULL)
        found = entry->d_name[0] != '.' && entry_type(dirfd(directory), entry) == DT_DIR;
    closedir(directory);
    return found;
}

static bool path_join(char path[PATH_MAX], const char *directory, const char *name)
{
    return (size_t)snprintf(path, PATH_MAX, "%s%s%s", directory, name[0] == '\0' ? "" : "/", name) < PATH_MAX;
}

static bool disk_has(void *context, const char *folder, bool folders)
{
    struct stat stat_;
    char path[PATH_MAX];

    return path_join(path, context, folder) &&
           (folders ? gp_folder_is(path) : stat(path, &stat_) == 0 && S_ISDIR(stat_.st_mode));
}

static gp_status disk_folders(void *context, gp_image_list *out, const char *folder, gp_image_list *stamps,
                              gp_error *err)
{
    char path[PATH_MAX];
    struct stat stat_;
    name_list names;
    DIR *directory = path_join(path, context, folder) ? opendir(path) : NULL;
    gp_status status;

    if (directory == NULL)
        return gp_fail_errno(err,
                             errno == ENOENT   ? GP_ENOENT
                             : errno == EACCES ? GP_EPERM
                                               : GP_EIO,
                             "cannot list %s", path);
    name_list_init(&names);
    status = fstat(dirfd(directory), &stat_) != 0
                 ? gp_fail_errno(err, GP_EIO, "cannot list %s", path)
                 : gp_image_list_add_stamp(stamps, below_root(stamps, path), &stat_, err);
    if (status == GP_OK)
        status = directory_read(directory, path, NULL, &names, &out->others, NULL, err);
    closedir(directory);
    for (uint32_t i = 0; i < names.count && status == GP_OK; i++)
        status = gp_image_list_add_class(out, name_text(&names, i), err);
    name_list_deinit(&names);
    return status;
}

static gp_status disk_list(void *context, gp_image_list *list, const char *folder, int32_t label,
                           const gp_store_options *options, gp_error *err)
{
    folder_walk walk = { .list = list, .options = options, .label = label };

    return path_join(walk.path, context, folder)
               ? walk_folder(&walk, err)
               : gp_fail(err, GP_ELIMIT, "the path %.200s.../%.100s is too long", (const char *)context,
                         folder);
}

static gp_status disk_read(void *context, gp_csv *csv, const char *file, const char *path, gp_error *err)
{
    (void)context;
    (void)file;
    return gp_csv_open(csv, path, err);
}

gp_tree gp_disk_tree(const char *directory)
{
    return (gp_tree){ .root = directory,
                      .context = (void *)(uintptr_t)directory,
                      .has = disk_has,
                      .folders = disk_folders,
                      .list = disk_list,
                      .read = disk_read };
}

gp_status gp_folder_list_all(gp_image_list *list, const char *directory, const gp_store_options *options,
                             gp_error *err)
{
    gp_image_list_init(list);
    return disk_list((void *)(uintptr_t)directory, list, "", -1, options, err);
}

/* ---- parts ---- */

static const char *const train_names[] = { "train", NULL };
static const char *const test_names[] = { "test", "val", "validation", "valid", NULL };
/* Candidates for validation during training; the test part is kept for the end. */
static const char *const validation_names[] = { "val", "validation", "valid", "test", NULL };

/* Return the first of `names` that is among the folders; NULL: none. */
static const char *part_find(const gp_image_list *folders, const char *const *names)
{
    while (*names != NULL && gp_image_list_find_class(folders, *names) < 0)
        names++;
    return *names;
}

/* Return whether a source is divided into parts, and not into classes: all folders have part names
 * and contain folders, or train/ contains folders and stands beside a test part, which may have
 * images without classes. GP_ECORRUPT: besides such parts there is another folder. */
static gp_status is_divided(bool *divided, const gp_tree *tree, const gp_image_list *folders, gp_error *err)
{
    const char *train = part_find(folders, train_names), *test = part_find(folders, test_names);
    const bool sure = train != NULL && test != NULL && tree->has(tree->context, train, true);

    *divided = train != NULL || test != NULL;
    for (uint32_t i = 0; i < folders->class_count; i++) {
        const char *name = gp_image_list_class(folders, i);
        bool part = strcmp(name, train_names[0]) == 0;

        for (int k = 0; test_names[k] != NULL; k++)
            part = part || strcmp(name, test_names[k]) == 0;
        if (sure && !part)
            return gp_fail(err, GP_ECORRUPT,
                           "%s has the parts %s/ and %s/, and also %s/, which is not a part; move it "
                           "elsewhere",
                           tree->root, train, test, name);
        *divided = *divided && part && (sure || tree->has(tree->context, name, true));
    }
    return GP_OK;
}

/* Choose the folder for a role, part[0], and the one that defines the classes, part[1]. The
 * training part defines the classes if it exists, so that a network trained on one part fits the
 * other. */
static gp_status parts_decide(const char *part[2], const gp_tree *tree, gp_data_role role,
                              const gp_image_list *folders, gp_error *err)
{
    const char *train, *test;
    bool divided;
    gp_status status = is_divided(&divided, tree, folders, err);

    part[0] = part[1] = "";
    if (status != GP_OK)
        return status;
    if (!divided)
        return role != GP_DATA_TEST ? GP_OK
                                    : gp_fail(err, GP_ENOENT,
                                              "%s has no test images: it has no train/ and test/ (or val/); "
                                              "split it with `gradpool data split`",
                                              tree->root);
    train = part_find(folders, train_names);
    test = part_find(folders, role == GP_DATA_TEST ? validation_names : test_names);
    part[0] = role == GP_DATA_TRAIN || (role == GP_DATA_GIVEN && test == NULL) ? train : test;
    part[1] = train != NULL ? train : part[0];
    return part[0] != NULL ? GP_OK
                           : gp_fail(err, GP_ENOENT, "%s has no %s images: it has no %s/", tree->root,
                                     role == GP_DATA_TRAIN ? "training" : "test",
                                     role == GP_DATA_TRAIN ? "train" : "test");
}

/* ---- classes ---- */

/* List the class folders of a part in order. A folder that is not a known class is an error.
 * A class without images is an error only if the classes come from these folders. place
 * name of the part, for messages */
static gp_status classes_list(gp_image_list *list, const gp_tree *tree, const char *const part[2],
                              const char *place, const gp_image_list *folders,
                              const gp_store_options *options, gp_error *err)
{
    gp_store_options quiet = *options;
    char folder[PATH_MAX];
    gp_error said;
    gp_status status = GP_OK;

    if (folders->class_count > 1) /* the number of folders is known, that of files is not */
        quiet.progress = NULL;
    for (uint32_t i = 0; i < folders->class_count && status == GP_OK; i++) {
        const char *name = gp_image_list_class(folders, i);
        const int32_t label = gp_image_list_find_class(list, name);
        const uint32_t before = list->count;

        if (label < 0)
            return gp_fail(err, GP_ECORRUPT, "%s/%s: the training images have no class with this name", place,
                           name);
        snprintf(folder, sizeof(folder), "%s%s%s", part[0], part[0][0] == '\0' ? "" : "/", name);
        status = tree->list(tree->context, list, folder, label, &quiet, err);
        if (status == GP_OK && list->count == before && strcmp(part[0], part[1]) == 0) {
            if (options->on_error != GP_ON_ERROR_SKIP)
                return gp_fail(
                    err, GP_ECORRUPT,
                    "class %s has no images: %s/%s has no .jpg or .png file; add some or remove the folder",
                    name, place, name);
            gp_fail(&said, GP_ECORRUPT, "class %s has no images in %s", name, place);
            gp_image_list_leave_out(list, said.message);
        }
        if (folders->class_count > 1)
            gp_progress_report(options->progress, "listing", "class folders", i + 1, folders->class_count);
    }
    if (status == GP_OK && list->count == 0)
        status = gp_fail(err, GP_ENOENT, "the class folders of %s have no .jpg or .png file", place);
    return status;
}

gp_status gp_class_folders_list(gp_image_list *list, const gp_tree *tree, gp_data_role role,
                                const gp_store_options *options, gp_error *err)
{
    gp_image_list top, ours; /* folders of the source and of this part, as classes */
    const char *part[2];
    char place[PATH_MAX];
    gp_status status;

    gp_image_list_init(&top);
    gp_image_list_init(&ours);
    status = tree->folders(tree->context, &top, "", list, err);
    if (status == GP_OK)
        status = parts_decide(part, tree, role, &top, err);
    if (status == GP_OK)
        status = tree->folders(tree->context, &ours, part[0], list, err);
    if (status == GP_OK)
        status = tree->folders(tree->context, list, part[1], list, err);
    list->others = ours.others;
    if (status == GP_OK && list->class_count == 0)
        status =
            gp_fail(err, GP_ENOENT, "%s%s%s has no class folders; images must be %s/CLASS/NAME.jpg or .png",
                    tree->root, part[1][0] == '\0' ? "" : "/", part[1], tree->root);
    if (status == GP_OK) {
        snprintf(place, sizeof(place), "%s%s%s", tree->root, part[0][0] == '\0' ? "" : "/", part[0]);
        status = classes_list(list, tree, part, place, &ours, options, err);
    }
    gp_image_list_deinit(&top);
    gp_image_list_deinit(&ours);
    return status;
}

gp_status gp_folder_list(gp_image_list *list, const char *directory, gp_data_role role,
                         const gp_store_options *options, gp_error *err)
{
    const gp_tree tree = gp_disk_tree(directory);
    gp_status status;

    if (gp_image_index_load(list, directory, role))
        return GP_OK;
    list->root = gp_strdup(directory);
    if (list->root == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the listing of %s", directory);
    status = gp_class_folders_list(list, &tree, role, options, err);
    gp_image_list_trim(list);
    if (status == GP_OK)
        gp_image_index_save(list, directory, role);
    return status;
}
