/* onnx_external.c -- weights in external files: TensorProto.data_location EXTERNAL with file
 * name, offset and length as strings (onnx/docs/ExternalData.md).
 *
 * Models are not trusted, and their file names must not lead out of the model's directory. Each
 * path component is opened relative to the previous one. "..", absolute paths and symbolic links
 * are refused, and only regular files are read. The data are stored as raw_data, as if the model
 * file had contained them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/model/onnx/onnx_tensor.h"

enum { PATH_BYTES_MAX = 1024, PATH_PARTS_MAX = 32 };
#define BYTES_MAX ((size_t)1 << 35) /* limit for all tensors together */

typedef struct place {
    const char *path;
    uint64_t offset, length;
    bool has_length;
} place;

/* A file that a tensor has named, by any path. */
typedef struct source_file {
    dev_t device;
    ino_t inode;
    /* bytes that may still be read, so that tensors cannot all refer to the same gigabyte */
    uint64_t left;
} source_file;

/* The file opened last. Models have one external file, or one per tensor. */
typedef struct source {
    const char *folder, *path;
    int fd;
    uint64_t bytes;
    source_file *files;
    size_t file_count, file; /* file: index of the open file */
} source;

static gp_status number_of(const char *text, uint64_t *out, gp_error *err)
{
    char shown[GP_ONNX_SHOWN_BYTES];

    *out = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || *out > (UINT64_MAX - 9) / 10)
            return gp_fail(err, GP_ECORRUPT, "its offset or length '%s' is not a whole number",
                           gp_onnx_show(shown, text, strlen(text)));
        *out = *out * 10 + (uint64_t)(*at - '0');
    }
    return *text != '\0' ? GP_OK : gp_fail(err, GP_ECORRUPT, "its offset or length is empty");
}

static gp_status place_of(const Onnx__TensorProto *tensor, place *out, gp_error *err)
{
    gp_status status = GP_OK;

    *out = (place){ 0 };
    for (size_t i = 0; i < tensor->n_external_data && status == GP_OK; i++) {
        const Onnx__StringStringEntryProto *pair = tensor->external_data[i];

        if (pair->key == NULL || pair->value == NULL)
            continue;
        if (strcmp(pair->key, "location") == 0) {
            out->path = pair->value;
        } else if (strcmp(pair->key, "offset") == 0) {
            status = number_of(pair->value, &out->offset, err);
        } else if (strcmp(pair->key, "length") == 0) {
            out->has_length = true;
            status = number_of(pair->value, &out->length, err);
        }
    }
    if (status == GP_OK && (out->path == NULL || *out->path == '\0' || strlen(out->path) >= PATH_BYTES_MAX))
        return gp_fail(err, GP_ECORRUPT, "it names no file, or one with more than %d bytes",
                       PATH_BYTES_MAX - 1);
    return status;
}

/* Copy the next path component to `part`. false: end of the path. */
static bool next_part(const char **at, char part[PATH_BYTES_MAX])
{
    size_t bytes;

    *at += strspn(*at, "/");
    bytes = strcspn(*at, "/");
    memcpy(part, *at, bytes);
    part[bytes] = '\0';
    *at += bytes;
    return bytes > 0;
}

/* Open a file below the directory, one component at a time and without following links. */
static gp_status open_beneath(const char *folder, const char *path, int *out, gp_error *err)
{
    char part[PATH_BYTES_MAX], following[PATH_BYTES_MAX], shown[GP_ONNX_SHOWN_BYTES];
    const char *at = path;
    int fd = open(*folder == '\0' ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    gp_onnx_show(shown, path, strlen(path));
    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot open the directory %s", folder);
    bool more = *path != '/' && next_part(&at, part);

    for (int parts = 0; more; parts++) {
        if (strcmp(part, "..") == 0 || parts == PATH_PARTS_MAX)
            break;
        more = next_part(&at, following);
        int inner =
            openat(fd, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (more ? O_DIRECTORY : 0));
        int why = errno;

        close(fd);
        fd = -1;
        if (inner < 0 && (why == ELOOP || why == ENOTDIR))
            return gp_fail(err, GP_EUNSUPPORTED,
                           "'%s' contains a symbolic link or a file as directory; weights must be in regular "
                           "files in the directory of the model",
                           shown);
        errno = why;
        if (inner < 0)
            return gp_fail_errno(err, why == ENOENT ? GP_ENOENT : GP_EIO, "cannot open its data '%s'", shown);
        fd = inner;
        strcpy(part, following);
        if (!more) {
            *out = fd;
            return GP_OK;
        }
    }
    close(fd);
    return gp_fail(err, GP_EUNSUPPORTED,
                   "'%s' is outside of the directory of the model; weights must be inside it", shown);
}

static void source_close(source *from)
{
    if (from->path != NULL)
        close(from->fd);
    from->path = NULL;
}

/* Set from->file to the entry of a file, which is added if the file is new. */
static gp_status source_find(source *from, const struct stat *info, gp_error *err)
{
    source_file *files = from->files;

    for (from->file = 0; from->file < from->file_count; from->file++)
        if (files[from->file].inode == info->st_ino && files[from->file].device == info->st_dev)
            return GP_OK;
    files = gp_array_grow(files, from->file_count, sizeof(*files));
    if (files == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a list of %zu files", from->file_count + 1);
    from->files = files;
    files[from->file_count++] =
        (source_file){ .device = info->st_dev, .inode = info->st_ino, .left = (uint64_t)info->st_size };
    return GP_OK;
}

static gp_status source_open(source *from, const char *path, gp_error *err)
{
    char shown[GP_ONNX_SHOWN_BYTES];
    struct stat info;
    int fd = -1;

    if (from->path != NULL && strcmp(from->path, path) == 0)
        return GP_OK;
    source_close(from);
    gp_status status = open_beneath(from->folder, path, &fd, err);

    if (status != GP_OK)
        return status;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return gp_fail(err, GP_EUNSUPPORTED, "'%s' is not a regular file",
                       gp_onnx_show(shown, path, strlen(path)));
    }
    status = source_find(from, &info, err);
    if (status != GP_OK) {
        close(fd);
        return status;
    }
    from->path = path;
    from->fd = fd;
    from->bytes = (uint64_t)info.st_size;
    return GP_OK;
}

static gp_status tensor_load(source *from, Onnx__TensorProto *tensor, size_t *total, gp_error *err)
{
    const size_t each = gp_onnx_type_bytes(tensor->data_type);
    place at;
    size_t bytes = each;
    gp_status status = place_of(tensor, &at, err);

    if (status == GP_OK && each == 0)
        status = gp_fail(err, GP_EUNSUPPORTED, "it has ONNX type %" PRId32 "; must be float32 (type 1)",
                         tensor->data_type);
    if (status == GP_OK)
        status = source_open(from, at.path, err);
    if (status != GP_OK)
        return status;
    for (size_t i = 0; i < tensor->n_dims; i++)
        /* at most 2^31 elements, checked by gp_onnx_tensor_check() */
        bytes *= (size_t)tensor->dims[i];
    if (at.has_length && at.length != bytes)
        return gp_fail(err, GP_ECORRUPT, "its data has %" PRIu64 " bytes, but its shape needs %zu", at.length,
                       bytes);
    if (at.offset > from->bytes || bytes > from->bytes - at.offset)
        return gp_fail(err, GP_ECORRUPT,
                       "its data of %zu bytes from %" PRIu64 " exceeds its file of %" PRIu64 " bytes", bytes,
                       at.offset, from->bytes);
    if (bytes > from->files[from->file].left || bytes > BYTES_MAX - *total)
        return gp_fail(err, GP_ELIMIT, "the tensors in its file overlap, or have more than %zu GiB in total",
                       BYTES_MAX >> 30);
    from->files[from->file].left -= bytes;
    uint8_t *data = gp_malloc(bytes);

    if (data == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu bytes of weights", bytes);
    const ssize_t got = gp_read_at(from->fd, data, bytes, at.offset);

    if (got < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot read its data");
    else if ((size_t)got < bytes)
        status = gp_fail(err, GP_EIO, "its data is truncated: %zd of %zu bytes", got, bytes);
    if (status != GP_OK) {
        gp_free(data);
        return status;
    }
    *total += bytes;

    /* protobuf-c frees the data with the allocator that unpacked the model */
    tensor->has_raw_data = true;
    tensor->raw_data.data = data;
    tensor->raw_data.len = bytes;
    return GP_OK;
}

static gp_status tensor_visit(source *from, Onnx__TensorProto *tensor, size_t *total, gp_error *err)
{
    char shown[GP_ONNX_SHOWN_BYTES];
    const char *name = tensor->name == NULL ? "" : tensor->name;

    gp_status status = gp_onnx_tensor_check(tensor, err);

    if (status != GP_OK || tensor->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return status;
    gp_onnx_show(shown, name, strlen(name));
    if (from->folder == NULL)
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "tensor '%s' has its data in another file (external data), which is supported only for models in "
            "files; save the model as one file (in Python: onnx.save(onnx.load(path), new_path))",
            shown);
    status = tensor_load(from, tensor, total, err);
    if (status != GP_OK && status != GP_ENOMEM)
        gp_error_prefix(err, "tensor '%s' (external data)", shown);
    return status;
}

gp_status gp_onnx_external_load(Onnx__GraphProto *graph, const char *folder, size_t *bytes, gp_error *err)
{
    source from = { .folder = folder };
    gp_status status = GP_OK;

    *bytes = 0;
    for (size_t i = 0; i < graph->n_initializer && status == GP_OK; i++)
        status = tensor_visit(&from, graph->initializer[i], bytes, err);
    for (size_t n = 0; n < graph->n_node && status == GP_OK; n++)
        for (size_t k = 0; k < graph->node[n]->n_attribute && status == GP_OK; k++)
            if (graph->node[n]->attribute[k]->t != NULL)
                status = tensor_visit(&from, graph->node[n]->attribute[k]->t, bytes, err);
    source_close(&from);
    gp_free(from.files);
    return status;
}
