/* Parse and write NumPy array files.
 *
 * The header is a Python dictionary literal with three keys in any order, as repr() writes it:
 *
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }
 *
 * The parser accepts only this form. */
#include "common/data/format/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/data/store/store.h"

static const struct {
    const char *descr;
    gp_dtype dtype;
} types[] = { { "|u1", GP_U8 },  { "|b1", GP_U8 },  { "<i4", GP_I32 }, { "<i8", GP_I64 },
              { "<f4", GP_F32 }, { "<f8", GP_F64 }, { "u1", GP_U8 } };

typedef struct npy_header {
    char descr[16];
    bool fortran, has_descr, has_fortran, has_shape;
    gp_shape shape;
} npy_header;

static const char *space_skip(const char *at)
{
    return at + strspn(at, " \n\t");
}

/* Copy a quoted string to `text`. Return the position behind the closing quote; NULL: no string, or
 * too long. */
static const char *text_take(const char *at, char *text, size_t bytes)
{
    char quote = *at;
    const char *end = quote == '\'' || quote == '"' ? strchr(at + 1, quote) : NULL;

    if (end == NULL || (size_t)(end - at) > bytes)
        return NULL;
    memcpy(text, at + 1, (size_t)(end - at) - 1);
    text[end - at - 1] = '\0';
    return end + 1;
}

/* Parse a tuple: (1, 2, 3) or (1,) or (). Return the position behind it; NULL: malformed. */
static const char *shape_take(const char *at, gp_shape *shape)
{
    if (*at++ != '(')
        return NULL;
    for (shape->rank = 0; *(at = space_skip(at)) != ')';) {
        char *end;
        long long side;

        if (*at < '0' || *at > '9' || shape->rank == GP_RANK_MAX)
            return NULL;
        errno = 0;
        side = strtoll(at, &end, 10);
        if (errno != 0)
            return NULL;
        shape->dim[shape->rank++] = side;
        at = space_skip(*end == 'L' ? end + 1 : end);
        if (*at == ',')
            at++;
        else if (*at != ')')
            return NULL;
    }
    return at + 1;
}

/* Parse one "key: value" entry. Return the position behind it; NULL: malformed, or an unknown
 * key. */
static const char *entry_take(const char *at, npy_header *header)
{
    char key[16];

    at = text_take(at, key, sizeof(key));
    if (at == NULL || *(at = space_skip(at)) != ':')
        return NULL;
    at = space_skip(at + 1);
    if (strcmp(key, "descr") == 0) {
        header->has_descr = true;
        return text_take(at, header->descr, sizeof(header->descr));
    }
    if (strcmp(key, "shape") == 0) {
        header->has_shape = true;
        return shape_take(at, &header->shape);
    }
    if (strcmp(key, "fortran_order") != 0)
        return NULL;
    header->has_fortran = true;
    header->fortran = strncmp(at, "True", 4) == 0;
    return header->fortran ? at + 4 : strncmp(at, "False", 5) == 0 ? at + 5 : NULL;
}

static bool header_parse(npy_header *header, const char *text)
{
    const char *at = space_skip(text);

    if (*at++ != '{')
        return false;
    while (*(at = space_skip(at)) != '}') {
        at = entry_take(at, header);
        if (at == NULL)
            return false;
        at = space_skip(at);
        if (*at == ',')
            at++;
        else if (*at != '}')
            return false;
    }
    return header->has_descr && header->has_fortran && header->has_shape;
}

gp_status gp_npy_parse(gp_npy *out, const void *data, size_t bytes, const char *name, gp_error *err)
{
    const uint8_t *byte = data;
    char text[GP_NPY_HEADER_BYTES_MAX + 1];
    npy_header header = { .fortran = false };
    gp_npy npy = { .map = NULL };
    size_t begin, length, needed;
    gp_status status = GP_OK;

    if (bytes < 12 || memcmp(byte, "\x93NUMPY", 6) != 0)
        return gp_fail(err, GP_ECORRUPT, "%s is not a .npy file: it does not start with \\x93NUMPY", name);
    if (byte[6] < 1 || byte[6] > 3)
        return gp_fail(err, GP_EUNSUPPORTED, "%s has version %u of the .npy format; must be 1 to 3", name,
                       byte[6]);
    begin = byte[6] == 1 ? 10 : 12;
    length = byte[8] | (size_t)byte[9] << 8;
    if (byte[6] > 1)
        length |= (size_t)byte[10] << 16 | (size_t)byte[11] << 24;
    if (length > GP_NPY_HEADER_BYTES_MAX || length > bytes - begin)
        return gp_fail(err, GP_ECORRUPT, "%s is truncated: a header of %zu bytes in a file of %zu", name,
                       length, bytes);
    memcpy(text, byte + begin, length);
    text[length] = '\0';
    if (!header_parse(&header, text))
        return gp_fail(err, GP_ECORRUPT, "%s: unsupported header: %.80s", name, text);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].descr, header.descr) == 0)
            npy.dtype = types[i].dtype;
    if (npy.dtype == 0)
        status = gp_fail(err, GP_EUNSUPPORTED,
                         "%s: unsupported elements of type '%s': must be uint8, int32, int64, float32 or "
                         "float64; convert with numpy.save(file, array.astype('float32'))",
                         name, header.descr);
    if (status == GP_OK && header.fortran && header.shape.rank > 1)
        status = gp_fail(
            err, GP_EUNSUPPORTED,
            "%s is in Fortran order; convert with numpy.save(file, numpy.ascontiguousarray(array))", name);
    if (status == GP_OK)
        status = gp_shape_check(&header.shape, (int64_t)1 << 48, err);
    if (status != GP_OK)
        return status;
    npy.shape = header.shape;
    needed = (size_t)gp_shape_count(&npy.shape) * gp_dtype_bytes(npy.dtype);
    if (needed > bytes - begin - length)
        return gp_fail(err, GP_ECORRUPT, "%s is truncated: it needs %zu bytes of elements, but has %zu", name,
                       needed, bytes - begin - length);
    npy.data = byte + begin + length;
    if ((uintptr_t)npy.data % gp_dtype_bytes(npy.dtype) != 0)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "%s: the elements are not aligned; write the file with numpy.save()", name);
    *out = npy;
    return GP_OK;
}

size_t gp_npy_header(unsigned char out[GP_NPY_WRITTEN_MAX], gp_dtype dtype, const gp_shape *shape)
{
    enum { BEFORE = 10 }; /* magic, version, length */
    const char *descr = NULL;
    char *text = (char *)out + BEFORE;
    size_t room = GP_NPY_WRITTEN_MAX - BEFORE, used, bytes;

    for (size_t i = sizeof(types) / sizeof(types[0]); i > 0; i--)
        if (types[i - 1].dtype == dtype)
            descr = types[i - 1].descr; /* the first row of a type is the usual spelling */
    if (descr == NULL || shape->rank > GP_RANK_MAX)
        return 0;
    used = (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t d = 0; d < shape->rank; d++)
        used += (size_t)snprintf(text + used, room - used, "%" PRId64 ",%s", shape->dim[d],
                                 d + 1 < shape->rank ? " " : "");
    used += (size_t)snprintf(text + used, room - used, "), }");
    bytes = (BEFORE + used + 1 + 63) / 64 * 64;
    memset(text + used, ' ', bytes - BEFORE - used);
    out[bytes - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (unsigned char)((bytes - BEFORE) & 255);
    out[9] = (unsigned char)((bytes - BEFORE) >> 8);
    return bytes;
}

gp_status gp_npy_open_fd(gp_npy *out, int fd, const char *name, gp_error *err)
{
    struct stat stat_;
    void *map = MAP_FAILED;
    gp_status status;

    if (fstat(fd, &stat_) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot open %s", name);
    else if (!S_ISREG(stat_.st_mode) || stat_.st_size == 0)
        status = gp_fail(err, GP_ECORRUPT, "%s is empty or not a regular file", name);
    else if ((map = mmap(NULL, (size_t)stat_.st_size, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED)
        status = gp_fail_errno(err, GP_EIO, "cannot map %s", name);
    else
        status = gp_npy_parse(out, map, (size_t)stat_.st_size, name, err);
    if (status != GP_OK) {
        if (map != MAP_FAILED)
            munmap(map, (size_t)stat_.st_size);
        return status;
    }
    out->map = map;
    out->map_bytes = (size_t)stat_.st_size;
    return GP_OK;
}

gp_status gp_npy_open(gp_npy *out, const char *path, gp_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    gp_status status;

    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", path);
    status = gp_npy_open_fd(out, fd, path, err);
    close(fd);
    return status;
}

void gp_npy_close(gp_npy *npy)
{
    if (npy->map != NULL)
        munmap(npy->map, npy->map_bytes);
    npy->map = NULL;
}
