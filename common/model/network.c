#include "common/model/network.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/fault.h"
#include "common/base/json.h"
#include "common/model/onnx.h"

enum { MODEL_BYTES_MAX = INT_MAX };

gp_status gp_file_read(uint8_t **data, size_t *bytes, const char *path, size_t bytes_max, gp_error *err)
{
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", path);
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || (size_t)facts.st_size > bytes_max) {
        close(fd);
        return gp_fail(err, GP_ELIMIT, "%s is not a file of at most %zu bytes", path, bytes_max);
    }
    size_t size = (size_t)facts.st_size, used = 0;
    uint8_t *buffer = gp_malloc(size);

    while (buffer != NULL && used < size) {
        ssize_t got = read(fd, buffer + used, size - used);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(fd);
    if (buffer == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the %zu bytes of %s", size, path);
    if (used != size) {
        gp_free(buffer);
        return gp_fail(err, GP_EIO, "%s ended after %zu of %zu bytes", path, used, size);
    }
    *data = buffer;
    *bytes = size;
    return GP_OK;
}

static gp_status write_all(int fd, const uint8_t *data, size_t bytes, const char *path, gp_error *err)
{
    while (bytes > 0) {
        ssize_t put = write(fd, data, bytes);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return gp_fail_errno(err, GP_EIO, "cannot write %s", path);
        data += put;
        bytes -= (size_t)put;
    }
    return fsync(fd) == 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot write %s", path);
}

/* In the folder of path, without a name: should we die, it is gone.  *named: not every file system has that. */
static int file_create(const char *path, const char *temporary, bool *named)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int fd;

    snprintf(folder, sizeof(folder), "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
             slash == NULL ? "." : path);
    fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    *named = fd < 0;
    return fd >= 0 ? fd : open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

static bool file_name(int fd, const char *temporary)
{
    char self[40];

    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    unlink(temporary);
    return linkat(AT_FDCWD, self, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW) == 0;
}

gp_status gp_file_write(const char *path, const void *data, size_t bytes, gp_error *err)
{
    char temporary[PATH_MAX];
    bool named;

    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.tmp-%d", path, (int)getpid()) >= sizeof(temporary))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", path);
    int fd = file_create(path, temporary, &named);

    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create %s", path);
    gp_status status = write_all(fd, data, bytes, path, err);

    gp_fault_point("file-written");
    if (status == GP_OK && !named && !file_name(fd, temporary))
        status = gp_fail_errno(err, GP_EIO, "cannot give %s its name", path);
    if (close(fd) != 0 && status == GP_OK)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    if (status == GP_OK && rename(temporary, path) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", temporary, path);
    if (status != GP_OK)
        unlink(temporary);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);

    return a >= b && strcmp(text + a - b, end) == 0;
}

bool gp_network_is_file(const char *name)
{
    return strchr(name, '/') != NULL || ends_with(name, ".onnx") || ends_with(name, ".json");
}

/* Weights that the model keeps in other files are looked for beside it. */
static gp_status onnx_load(gp_network *network, const char *path, const uint8_t *data, size_t bytes,
                           gp_error *err)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    const gp_onnx_options options = { .folder = folder };

    if (slash != NULL && (size_t)(slash - path) + 2 > sizeof(folder))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", path);
    if (slash != NULL)
        snprintf(folder, sizeof(folder), "%.*s/", (int)(slash - path), path);
    return gp_onnx_read(&network->spec, &network->weights, &network->class_names, &network->class_count, data,
                        bytes, &options, err);
}

gp_status gp_network_load(gp_network *out, const char *name, const gp_shape *input, uint32_t classes,
                          gp_error *err)
{
    uint8_t *data;
    size_t bytes;
    gp_network network = { 0 };
    gp_status status;

    if (!gp_network_is_file(name)) {
        status = gp_zoo_check(name, err);
        if (status == GP_OK && input == NULL)
            status =
                gp_fail(err, GP_EINVAL,
                        "%s is a network without weights; give a model that was trained (FILE.onnx)", name);
        if (status == GP_OK)
            status = gp_zoo_build(&out->spec, name, input, classes, err);
        return status;
    }
    status = gp_file_read(&data, &bytes, name, MODEL_BYTES_MAX, err);
    if (status != GP_OK)
        return status;
    if (ends_with(name, ".json"))
        status = gp_netspec_from_json(&network.spec, (const char *)data, bytes, err);
    else
        status = onnx_load(&network, name, data, bytes, err);
    gp_free(data);
    if (status != GP_OK) {
        gp_error_prefix(err, "%s", name);
        return status;
    }
    *out = network;
    return GP_OK;
}

gp_status gp_network_read(gp_network *out, const void *data, size_t bytes, gp_error *err)
{
    const char *text = data;
    gp_network network = { 0 };
    gp_status status;
    size_t blank = 0;

    while (blank < bytes &&
           (text[blank] == ' ' || text[blank] == '\n' || text[blank] == '\t' || text[blank] == '\r'))
        blank++;
    if (blank < bytes && text[blank] == '{')
        status = gp_netspec_from_json(&network.spec, text, bytes, err);
    else
        status = gp_onnx_read(&network.spec, &network.weights, &network.class_names, &network.class_count,
                              data, bytes, NULL, err);
    if (status == GP_OK)
        *out = network;
    return status;
}

static void network_free_classes(gp_network *network)
{
    for (uint32_t i = 0; i < network->class_count && network->class_names != NULL; i++)
        gp_free(network->class_names[i]);
    gp_free(network->class_names);
    network->class_names = NULL;
    network->class_count = 0;
}

void gp_network_deinit(gp_network *network)
{
    network_free_classes(network);
    gp_netspec_free(network->spec);
    gp_free(network->weights);
    *network = (gp_network){ 0 };
}

gp_status gp_network_set_classes(gp_network *network, const char *json, size_t bytes, gp_error *err)
{
    gp_json *names;
    gp_status status = gp_json_parse(&names, json, bytes, err);

    if (status != GP_OK)
        return status;
    size_t count = gp_json_count(names);

    network_free_classes(network);
    network->class_names = gp_calloc(count, sizeof(*network->class_names));
    for (size_t i = 0; i < count && network->class_names != NULL; i++) {
        network->class_names[i] = gp_strdup(gp_json_text(gp_json_element(names, i), ""));
        network->class_count++;
        if (network->class_names[i] == NULL)
            break;
    }
    gp_json_free(names);
    if (network->class_names == NULL || network->class_count != count ||
        (count > 0 && network->class_names[count - 1] == NULL)) {
        network_free_classes(network);
        return gp_fail(err, GP_ENOMEM, "no memory for the names of %zu classes", count);
    }
    return GP_OK;
}
