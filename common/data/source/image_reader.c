/* Readers for images: load a file, an archive member or an S3 object into a reusable buffer. */
#include "common/data/source/image_reader.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/data/source/objects.h"

static void reader_free(gp_image_reader *r)
{
    gp_image_decoder_free(r->decoder);
    gp_resampler_free(r->resampler);
    gp_free(r->file);
    gp_free(r->label);
    gp_free(r->large);
    gp_free(r->planes);
    gp_free(r);
}

static gp_status reader_new(gp_image_reader **out, size_t label_bytes, gp_error *err)
{
    gp_image_reader *r = gp_calloc(1, sizeof(*r));
    gp_status status;

    if (r == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an image reader");
    status = gp_image_decoder_new(&r->decoder, err);
    if (status == GP_OK)
        status = gp_resampler_new(&r->resampler, err);
    r->label = status == GP_OK ? gp_malloc(label_bytes) : NULL;
    if (status == GP_OK && r->label == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a label image of %zu bytes", label_bytes);
    if (status != GP_OK) {
        reader_free(r);
        return status;
    }
    *out = r;
    return GP_OK;
}

void gp_image_readers_init(gp_image_readers *readers)
{
    pthread_mutex_init(&readers->lock, NULL);
    readers->first = NULL;
}

void gp_image_readers_deinit(gp_image_readers *readers)
{
    while (readers->first != NULL) {
        gp_image_reader *r = readers->first;

        readers->first = r->next;
        reader_free(r);
    }
    pthread_mutex_destroy(&readers->lock);
}

gp_status gp_image_reader_take(gp_image_readers *readers, size_t label_bytes, gp_image_reader **out,
                               gp_error *err)
{
    gp_image_reader *r;

    pthread_mutex_lock(&readers->lock);
    r = readers->first;
    if (r != NULL)
        readers->first = r->next;
    pthread_mutex_unlock(&readers->lock);
    if (r == NULL)
        return reader_new(out, label_bytes, err);
    *out = r;
    return GP_OK;
}

void gp_image_reader_give(gp_image_readers *readers, gp_image_reader *reader)
{
    pthread_mutex_lock(&readers->lock);
    reader->next = readers->first;
    readers->first = reader;
    pthread_mutex_unlock(&readers->lock);
}

gp_status gp_image_reader_room(gp_image_reader *reader, uint8_t **data, size_t *taken, size_t bytes,
                               gp_error *err)
{
    if (bytes <= *taken)
        return GP_OK;
    gp_free(*data);
    *taken = 0;
    *data = gp_malloc(bytes);
    if (*data == NULL)
        return gp_fail(err, GP_ENOMEM, "%s: no memory for %zu bytes", reader->name, bytes);
    *taken = bytes;
    return GP_OK;
}

void gp_image_list_path(const gp_image_list *list, uint32_t index, char *path, size_t bytes)
{
    const char *name = gp_image_list_name(list, index);

    if (name[0] == '/' || gp_s3_is(name))
        snprintf(path, bytes, "%s", name);
    else
        snprintf(path, bytes, "%s%s/%s", list->root == NULL ? "" : list->root,
                 gp_image_list_place(list, list->entries[index].place), name);
}

/* Return whether an open or a read failed because of the host or its file server. Other files may
 * fail at the same time, so the image is not skipped. */
static bool is_host_failure(int error)
{
    return error == EMFILE || error == ENFILE || error == ESTALE || error == ETIMEDOUT;
}

gp_status gp_image_reader_load(gp_image_reader *r, const gp_image_list *list, uint32_t index,
                               size_t bytes_max, size_t *bytes, gp_error *err)
{
    const bool member = list->offsets != NULL;
    const char *path = r->name;
    size_t size;
    int fd;

    r->unreachable = false;
    gp_image_list_path(list, index, r->name, sizeof(r->name));
    if (list->objects != NULL) { /* the prefetched buffer is swapped in */
        gp_buffer buffer = { .data = r->file,
                             .capacity = r->file_bytes,
                             .bytes_max = GP_IMAGE_FILE_BYTES_MAX };
        gp_status status = gp_objects_take(list->objects, index, bytes_max, &buffer, err);

        r->file = buffer.data;
        r->file_bytes = buffer.capacity;
        *bytes = buffer.bytes < bytes_max ? buffer.bytes : bytes_max;
        r->unreachable = status != GP_OK && status != GP_ENOENT;
        return status;
    }
    if (member)
        path = gp_image_list_place(list, list->entries[index].place);
    errno = 0;
    gp_status status = gp_file_open(&fd, &size, path, member ? SIZE_MAX : GP_IMAGE_FILE_BYTES_MAX, err);

    if (status != GP_OK) {
        r->unreachable = is_host_failure(errno);
        return status;
    }
    size = member ? list->sizes[index] : size;
    size = size < bytes_max ? size : bytes_max;
    status = gp_image_reader_room(r, &r->file, &r->file_bytes, size, err);
    if (status == GP_OK) {
        const ssize_t got = gp_read_at(fd, r->file, size, member ? list->offsets[index] : 0);

        *bytes = got < 0 ? 0 : (size_t)got;
        if (got < 0) {
            r->unreachable = is_host_failure(errno);
            status = gp_fail_errno(err, GP_EIO, "cannot read %s", r->name);
        }
    }
    close(fd);
    return status;
}
