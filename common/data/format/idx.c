/* Read and write IDX files through zlib, which also reads plain files. Large gzipped files are
 * cached in unpacked form. */
#include "common/data/format/idx.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "common/data/store/store.h"

enum {
    MAGIC_U8 = 0x00000800, /* type 08: unsigned byte; the low byte holds the rank */
    HEADER_MAX = 4 + 4 * GP_IDX_RANK_MAX,
    CHUNK = 1 << 20,
    SETTLED_SECONDS = 2,
    INFLATE_RATIO_MAX = 1032, /* upper bound for deflate (zlib's "technical details") */
};

typedef struct idx_reader {
    gzFile file; /* plain files are read too */
    const char *name;
    uint64_t disk_bytes;
} idx_reader;

static uint32_t big_endian_get(const uint8_t *byte)
{
    return (uint32_t)byte[0] << 24 | (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | byte[3];
}

static void big_endian_put(uint8_t *byte, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        byte[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Read up to `bytes` bytes. *got is smaller only at the end of the file. */
static gp_status reader_get(idx_reader *reader, void *data, size_t bytes, size_t *got, gp_error *err)
{
    int code;

    for (*got = 0; *got < bytes;) {
        size_t want = bytes - *got < CHUNK ? bytes - *got : CHUNK;
        int n = gzread(reader->file, (uint8_t *)data + *got, (unsigned)want);

        if (n < 0) {
            const char *text = gzerror(reader->file, &code);

            if (code == Z_ERRNO)
                return gp_fail_errno(err, GP_EIO, "cannot read %s after %zu bytes", reader->name, *got);
            if (code == Z_MEM_ERROR)
                return gp_fail(err, GP_ENOMEM, "no memory to decompress %s", reader->name);
            return gp_fail(err, GP_ECORRUPT, "%s is a damaged gzip file (%s); download it again",
                           reader->name, text);
        }
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    /* After a truncated gzip stream, gzread() returns fewer bytes and sets Z_BUF_ERROR. */
    (void)gzerror(reader->file, &code);
    if (code == Z_BUF_ERROR)
        return gp_fail(err, GP_ECORRUPT, "%s is a truncated gzip file of %llu bytes; download it again",
                       reader->name, (unsigned long long)reader->disk_bytes);
    return GP_OK;
}

/* Read and check the header; set rank, dimensions and size. */
static gp_status header_read(gp_idx *idx, idx_reader *reader, uint32_t rank, gp_error *err)
{
    uint8_t header[HEADER_MAX];
    size_t expected = 4 + 4 * (size_t)rank, got;
    uint64_t total = 1, possible;
    gp_status status = reader_get(reader, header, expected, &got, err);
    const uint32_t magic = status == GP_OK && got >= 4 ? big_endian_get(header) : 0;
    const uint32_t type = magic >> 8;

    if (status != GP_OK)
        return status;
    if (got >= 4 && magic != (MAGIC_U8 | rank))
        return gp_fail(err, GP_ECORRUPT, "%s is %s (magic 0x%08x), must be %s 0x%08x", reader->name,
                       magic == (MAGIC_U8 | 1)   ? "an IDX label file"
                       : magic == (MAGIC_U8 | 3) ? "an IDX image file"
                       : (magic & 0xff) != 0 && type >= 8 && type <= 14
                           ? "an IDX file of another type or rank"
                           : "not an IDX file",
                       magic, rank == 1 ? "labels" : "images", MAGIC_U8 | rank);
    if (got < expected)
        return gp_fail(err, GP_ECORRUPT,
                       "%s is truncated: %zu bytes, but its header has %zu; download it again", reader->name,
                       got, expected);
    idx->rank = rank;
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t max = i == 0 ? GP_STORE_SAMPLES_MAX : GP_STORE_SIDE_MAX;

        idx->dim[i] = big_endian_get(header + 4 + 4 * i);
        if (idx->dim[i] < 1 || idx->dim[i] > max)
            return gp_fail(err, GP_ELIMIT, "%s: dimension %u is %u; must be between 1 and %u", reader->name,
                           i + 1, idx->dim[i], max);
        total *= idx->dim[i];
    }

    /* Check the announced size before allocating memory: no file can hold more than its own size
     * unpacks to. */
    possible = reader->disk_bytes * (gzdirect(reader->file) ? 1 : INFLATE_RATIO_MAX);
    if (total > possible)
        return gp_fail(err, GP_ECORRUPT,
                       "%s is truncated: it needs %llu bytes, but has %llu; download it again", reader->name,
                       (unsigned long long)total, (unsigned long long)reader->disk_bytes);
    if (total > GP_STORE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has %llu bytes, at most %llu are supported", reader->name,
                       (unsigned long long)total, (unsigned long long)GP_STORE_BYTES_MAX);
    idx->bytes = (size_t)total;
    return GP_OK;
}

/* Read the data after the header. Implements gp_decoder. */
static gp_status body_read(void *context, void *to, size_t bytes, gp_error *err)
{
    idx_reader *reader = context;
    uint8_t extra;
    size_t got;
    gp_status status = reader_get(reader, to, bytes, &got, err);

    if (status != GP_OK)
        return status;
    if (got < bytes)
        return gp_fail(err, GP_ECORRUPT,
                       "%s is truncated: %zu bytes follow its header, which needs %zu; download it again",
                       reader->name, got, bytes);
    status = reader_get(reader, &extra, 1, &got, err); /* also makes zlib verify the CRC */
    if (status != GP_OK)
        return status;
    if (got != 0)
        return gp_fail(err, GP_ECORRUPT,
                       "%s has extra data after the %zu bytes that its header states; download it again",
                       reader->name, bytes);
    return GP_OK;
}

gp_status gp_idx_read_fd(gp_idx *out, int fd, const char *name, uint32_t rank, gp_error *err)
{
    struct stat stat;
    idx_reader reader = { .name = name };
    gp_idx idx = { 0 };
    char key[160];
    gp_status status;

    assert(rank == 1 || rank == 3);
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) {
        close(fd);
        return gp_fail(err, GP_EINVAL, "%s is not a regular file; it must be an IDX file", name);
    }
    reader.disk_bytes = (uint64_t)stat.st_size;
    reader.file = gzdopen(fd, "rb");
    if (reader.file == NULL) {
        close(fd);
        return gp_fail(err, GP_ENOMEM, "no memory for the content of %s", name);
    }
    gzbuffer(reader.file, 128 << 10);
    status = header_read(&idx, &reader, rank, err);

    /* The cache key is the file's identity and modification time; the name is not part of it. Small
     * or uncompressed files are not cached, and neither are files modified within the last
     * SETTLED_SECONDS, because a later change could leave their time stamp unchanged. */
    snprintf(key, sizeof(key), "idx 1 device %llu inode %llu size %llu mtime %lld.%09ld",
             (unsigned long long)stat.st_dev, (unsigned long long)stat.st_ino,
             (unsigned long long)stat.st_size, (long long)stat.st_mtim.tv_sec, stat.st_mtim.tv_nsec);
    const bool cached = idx.bytes >= GP_DECODED_BYTES_MIN && !gzdirect(reader.file) &&
                        stat.st_mtim.tv_sec <= time(NULL) - SETTLED_SECONDS;

    if (status == GP_OK)
        status = gp_decoded_get(&idx.decoded, cached ? key : NULL, idx.bytes, body_read, &reader, err);
    gzclose(reader.file);
    if (status != GP_OK)
        return status;
    idx.data = idx.decoded.data;
    *out = idx;
    return GP_OK;
}

gp_status gp_idx_read(gp_idx *out, const char *path, uint32_t rank, gp_error *err)
{
    /* O_NONBLOCK: opening a FIFO must not block */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", path);
    return gp_idx_read_fd(out, fd, path, rank, err);
}

void gp_idx_deinit(gp_idx *idx)
{
    gp_decoded_deinit(&idx->decoded);
    idx->data = NULL;
}

static gp_status body_write(gzFile file, const gp_idx *idx, const char *path, const gp_progress *progress,
                            gp_error *err)
{
    uint8_t header[HEADER_MAX];

    big_endian_put(header, MAGIC_U8 | idx->rank);
    for (uint32_t i = 0; i < idx->rank; i++)
        big_endian_put(header + 4 + 4 * i, idx->dim[i]);
    if (gzwrite(file, header, 4 + 4 * idx->rank) <= 0)
        return gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    for (size_t done = 0; done < idx->bytes;) {
        size_t part = idx->bytes - done < CHUNK ? idx->bytes - done : CHUNK;

        if (gzwrite(file, idx->data + done, (unsigned)part) <= 0)
            return gp_fail_errno(err, GP_EIO, "cannot write %s after %zu bytes", path, done);
        done += part;
        gp_progress_report(progress, "writing", NULL, done, idx->bytes);
    }
    return GP_OK;
}

gp_status gp_idx_write(const char *path, const gp_idx *idx, bool gzip, const gp_progress *progress,
                       gp_error *err)
{
    char temporary[PATH_MAX];
    gzFile file;
    gp_status status;
    int fd;

    assert(idx->rank == 1 || idx->rank == 3);
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.tmp", path) >= sizeof(temporary))
        return gp_fail(err, GP_ELIMIT, "the path %s is too long", path);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create %s", temporary);
    file = gzdopen(fd, gzip ? "wb6" : "wbT");
    if (file == NULL) {
        close(fd);
        unlink(temporary);
        return gp_fail(err, GP_ENOMEM, "no memory for the content of %s", path);
    }
    status = body_write(file, idx, temporary, progress, err);
    if (gzclose(file) != Z_OK && status == GP_OK)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", temporary);
    if (status == GP_OK && rename(temporary, path) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", temporary, path);
    if (status != GP_OK)
        unlink(temporary);
    return status;
}
