/* Read tar headers: POSIX.1-2017 "ustar Interchange Format" and "pax Extended Header", and the GNU
 * extensions "L" (long name), "K" (long link target) and "S" (sparse file). */
#include "common/data/format/tar.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"

enum { BLOCK = 512, EXTENDED_BYTES_MAX = 64 << 10 };

/* ---- the format ---- */

typedef struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8];
    char type;
    char link[100], magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
} tar_header;

typedef struct tar_walk {
    const gp_tar_source *source;
    const char *name;
    uint64_t at, bytes;                        /* current position and total size, in bytes */
    char long_name[GP_TAR_NAME_BYTES_MAX + 1]; /* name for the next member; "": none */
    char long_link[GP_TAR_NAME_BYTES_MAX + 1]; /* link target for the next member; "": none */
    uint64_t long_size;                        /* pax size for the next member; UINT64_MAX: none */
    bool sparse;                               /* pax: the next member is a sparse file */
} tar_walk;

static gp_status tar_damaged(const tar_walk *walk, const char *cause, gp_error *err)
{
    return gp_fail(err, GP_ECORRUPT, "%s: damaged archive at byte %llu of %llu: %s", walk->name,
                   (unsigned long long)walk->at, (unsigned long long)walk->bytes, cause);
}

static gp_status tar_read(const tar_walk *walk, uint64_t at, void *to, size_t bytes, gp_error *err)
{
    if (at > walk->bytes || bytes > walk->bytes - at)
        return tar_damaged(walk, "truncated", err);
    return walk->source->read(walk->source->context, at, to, bytes, err);
}

/* Parse a number in octal, or in GNU's base 256 for larger values. Return false if it is
 * neither. */
static bool number_parse(const char *field, size_t length, uint64_t *out)
{
    uint64_t value = 0;
    size_t i = 0;

    if ((field[0] & 0x80) != 0) {
        for (i = 0; i < length; i++) {
            if (value >> 55 != 0)
                return false;
            value = value << 8 | ((unsigned char)field[i] & (i == 0 ? 0x7f : 0xff));
        }
        *out = value;
        return true;
    }
    while (i < length && field[i] == ' ')
        i++;
    for (; i < length && field[i] >= '0' && field[i] <= '7'; i++) {
        if (value >> 60 != 0)
            return false;
        value = value * 8 + (uint64_t)(field[i] - '0');
    }
    *out = value;
    return i == length || field[i] == ' ' || field[i] == '\0';
}

static gp_status name_copy(const tar_walk *walk, char to[GP_TAR_NAME_BYTES_MAX + 1], const char *name,
                           gp_error *err)
{
    if (strlen(name) > GP_TAR_NAME_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s: the name of a member has more than %d bytes", walk->name,
                       GP_TAR_NAME_BYTES_MAX);
    strcpy(to, name);
    return GP_OK;
}

/* Parse a pax header, records of the form "LENGTH KEY=VALUE\n", for path, linkpath and size. In the
 * header of a sparse file, GNU.sparse.name is the path. */
static gp_status pax_take(tar_walk *walk, char *text, size_t bytes, gp_error *err)
{
    gp_status status = GP_OK;

    for (size_t at = 0; at < bytes && status == GP_OK;) {
        char *end, *key, *value;
        unsigned long length = strtoul(text + at, &end, 10);

        if (end == text + at || *end != ' ' || length > bytes - at ||
            length < (size_t)(end - text - (ptrdiff_t)at) + 3 || text[at + length - 1] != '\n')
            return tar_damaged(walk, "a malformed extended header", err);
        text[at + length - 1] = '\0';
        key = end + 1;
        value = strchr(key, '=');
        walk->sparse = walk->sparse || strncmp(key, "GNU.sparse.", 11) == 0;
        if (value != NULL &&
            (strncmp(key, "GNU.sparse.name=", 16) == 0 || (strncmp(key, "path=", 5) == 0 && !walk->sparse)))
            status = name_copy(walk, walk->long_name, value + 1, err);
        else if (value != NULL && strncmp(key, "linkpath=", 9) == 0)
            status = name_copy(walk, walk->long_link, value + 1, err);
        else if (value != NULL && strncmp(key, "size=", 5) == 0)
            walk->long_size = strtoull(value + 1, NULL, 10);
        at += length;
    }
    return status;
}

/* Read a header that describes the next member: pax ("x"), GNU long name ("L") or GNU long link
 * target ("K"). */
static gp_status extended_take(tar_walk *walk, char type, uint64_t bytes, gp_error *err)
{
    char *text;
    gp_status status;

    if (bytes > EXTENDED_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s: an extended header of %llu bytes at byte %llu is too large",
                       walk->name, (unsigned long long)bytes, (unsigned long long)walk->at);
    text = gp_malloc(bytes + 1);
    if (text == NULL)
        return gp_fail(err, GP_ENOMEM, "%s: no memory for a header", walk->name);
    status = tar_read(walk, walk->at + BLOCK, text, bytes, err);
    text[status == GP_OK ? bytes : 0] = '\0';
    if (status == GP_OK && type == 'x')
        status = pax_take(walk, text, bytes, err);
    else if (status == GP_OK)
        status = name_copy(walk, type == 'L' ? walk->long_name : walk->long_link, text, err);
    gp_free(text);
    return status;
}

/* Set *blocks to the number of header blocks that follow the first one: the list of the contents of
 * a sparse file continues there. */
static gp_status sparse_blocks(const tar_walk *walk, const tar_header *header, uint64_t *blocks,
                               gp_error *err)
{
    enum { CONTINUED = 482 - offsetof(tar_header, prefix), NEXT_CONTINUED = 504 };
    char continued = header->prefix[CONTINUED];
    gp_status status = GP_OK;

    for (*blocks = 0; header->type == 'S' && continued != '\0' && status == GP_OK;) {
        ++*blocks;
        status = tar_read(walk, walk->at + *blocks * BLOCK + NEXT_CONTINUED, &continued, 1, err);
    }
    return status;
}

/* Pass the current member to the callback. A regular file has an offset and a size, a link has a
 * target. */
static gp_status entry_give(const tar_walk *walk, const tar_header *header, uint64_t bytes,
                            gp_tar_member member, void *context, gp_error *err)
{
    char name[GP_TAR_NAME_BYTES_MAX + 1], link[GP_TAR_NAME_BYTES_MAX + 1];
    gp_tar_entry entry = { .name = name };

    if (walk->long_name[0] != '\0')
        strcpy(name, walk->long_name);
    else if (memcmp(header->magic, "ustar", 6) == 0 && header->prefix[0] != '\0')
        snprintf(name, sizeof(name), "%.155s/%.100s", header->prefix, header->name);
    else
        snprintf(name, sizeof(name), "%.100s", header->name);
    if (header->type == '1' || header->type == '2') {
        if (walk->long_link[0] != '\0')
            strcpy(link, walk->long_link);
        else
            snprintf(link, sizeof(link), "%.100s", header->link);
        entry.link = link;
        entry.symbolic = header->type == '2';
    } else {
        entry.offset = walk->at + BLOCK;
        entry.bytes = bytes;
        entry.sparse = walk->sparse || header->type == 'S';
    }
    return member(context, &entry, err);
}

/* Process one header and advance to the next. */
static gp_status tar_step(tar_walk *walk, const tar_header *header, gp_tar_member member, void *context,
                          gp_error *err)
{
    const char type = header->type;
    const bool file = type == '0' || type == '\0' || type == '7' || type == 'S';

    /* Ignore the size field for links, devices, directories and FIFOs, which have no contents.
     * Some archivers store the target's size there for a hard link, or reserved space for a
     * directory. */
    const bool empty = type >= '1' && type <= '6';
    uint64_t bytes, sum = 0, wanted, blocks;
    gp_status status = GP_OK;

    for (size_t i = 0; i < sizeof(*header); i++)
        sum += i >= offsetof(tar_header, sum) && i < offsetof(tar_header, type)
                   ? ' '
                   : ((const unsigned char *)header)[i];
    if (!number_parse(header->sum, sizeof(header->sum), &wanted) || sum != wanted)
        return tar_damaged(walk, "a header with a wrong checksum", err);
    if (!number_parse(header->size, sizeof(header->size), &bytes))
        return tar_damaged(walk, "a size field that is not a number", err);
    if (file && walk->long_size != UINT64_MAX)
        bytes = walk->long_size;
    if (empty)
        bytes = 0;
    if (bytes > walk->bytes - walk->at - BLOCK)
        return tar_damaged(walk, "a member that exceeds the archive", err);
    status = sparse_blocks(walk, header, &blocks, err);
    if (status == GP_OK && (type == 'x' || type == 'L' || type == 'K')) {
        status = extended_take(walk, type, bytes, err);
    } else if (status == GP_OK && type != 'g') {
        if (file || type == '1' || type == '2')
            status = entry_give(walk, header, bytes, member, context, err);
        walk->long_name[0] = walk->long_link[0] = '\0';
        walk->long_size = UINT64_MAX;
        walk->sparse = false;
    }
    walk->at += BLOCK + blocks * BLOCK + (bytes + BLOCK - 1) / BLOCK * BLOCK;
    return status;
}

gp_status gp_tar_walk_source(const gp_tar_source *source, const char *name, gp_tar_member member,
                             void *context, gp_error *err)
{
    static const char *const signatures[] = { "\x1f\x8b", "BZh", "\xfd\x37zXZ", "\x28\xb5\x2f\xfd" };
    static const tar_header zero;
    tar_walk walk = { .source = source, .name = name, .bytes = source->bytes, .long_size = UINT64_MAX };
    tar_header header;
    gp_status status = GP_OK;

    if (walk.bytes >= 5)
        status = tar_read(&walk, 0, &header, 5, err);
    for (int i = 0; status == GP_OK && walk.bytes >= 5 && i < 4; i++)
        if (memcmp(&header, signatures[i], strlen(signatures[i])) == 0)
            return gp_fail(err, GP_EUNSUPPORTED,
                           "%s is compressed, but samples need random access; decompress it to a .tar file",
                           name);
    while (status == GP_OK && walk.at + BLOCK <= walk.bytes) {
        status = tar_read(&walk, walk.at, &header, sizeof(header), err);
        if (status != GP_OK || memcmp(&header, &zero, sizeof(header)) == 0)
            return status;
        status = tar_step(&walk, &header, member, context, err);
    }
    /* Accept an archive without the two zero blocks at the end, but not a partial header. */
    if (status == GP_OK &&
        (walk.at > walk.bytes + BLOCK || (walk.at < walk.bytes && walk.bytes % BLOCK != 0)))
        return tar_damaged(&walk, "truncated", err);
    return status;
}

typedef struct tar_file {
    int fd;
    const char *name;
} tar_file;

static gp_status file_read(void *context, uint64_t at, void *to, size_t bytes, gp_error *err)
{
    const tar_file *file = context;
    ssize_t got = gp_read_at(file->fd, to, bytes, at);

    if (got < 0)
        return gp_fail_errno(err, GP_EIO, "cannot read %s", file->name);
    if ((size_t)got < bytes)
        return gp_fail(err, GP_ECORRUPT, "%s was truncated during reading", file->name);
    return GP_OK;
}

gp_status gp_tar_walk(int fd, const char *name, gp_tar_member member, void *context, gp_error *err)
{
    tar_file file = { fd, name };
    gp_tar_source source = { .read = file_read, .context = &file };
    struct stat stat_;

    if (fstat(fd, &stat_) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot read %s", name);
    source.bytes = (uint64_t)stat_.st_size;
    return gp_tar_walk_source(&source, name, member, context, err);
}
