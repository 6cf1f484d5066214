/* fuzz_lists.c: hostile CSV, tar, npy and IDX files. The first byte selects the format: c, t, n, i
 * (labels), I (images). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/data/format/csv.h"
#include "common/data/format/idx.h"
#include "common/data/format/npy.h"
#include "common/data/format/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void csv_run(const uint8_t *data, size_t bytes)
{
    char *text = gp_malloc(bytes + 1);
    gp_csv_row row;
    gp_error err = { GP_OK, "" };
    gp_csv csv;
    size_t taken = 0;

    if (text == NULL)
        abort();
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    gp_csv_init(&csv, "input", text, bytes);
    while (gp_csv_next(&csv, &row, &err) == GP_OK && row.count > 0)
        for (uint32_t i = 0; i < row.count; i++) {
            if (row.fields[i] < text || row.fields[i] > text + bytes)
                abort();
            taken += strlen(row.fields[i]);
        }
    if (taken > bytes || (err.code != GP_OK && err.message[0] == '\0'))
        abort();
    gp_csv_close(&csv);
}

typedef struct tar_bounds {
    uint64_t bytes, members;
} tar_bounds;

static gp_status member_check(void *context, const gp_tar_entry *entry, gp_error *err)
{
    tar_bounds *bounds = context;

    (void)err;
    if (strlen(entry->name) > GP_TAR_NAME_BYTES_MAX || entry->offset > bounds->bytes ||
        entry->bytes > bounds->bytes - entry->offset)
        abort();
    if (entry->link != NULL && (strlen(entry->link) > GP_TAR_NAME_BYTES_MAX || entry->bytes != 0))
        abort();
    bounds->members++;
    return GP_OK;
}

static void tar_run(const uint8_t *data, size_t bytes)
{
    tar_bounds bounds = { .bytes = bytes };
    gp_error err = { GP_OK, "" };
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    if (gp_tar_walk(fd, "input", member_check, &bounds, &err) != GP_OK && err.message[0] == '\0')
        abort();
    if (bounds.members > bytes / 512)
        abort();
    close(fd);
}

static void npy_run(const uint8_t *data, size_t bytes)
{
    uint8_t *aligned = gp_aligned_calloc(64, bytes + 1);
    gp_error err = { GP_OK, "" };
    gp_npy npy;

    if (aligned == NULL)
        abort();
    memcpy(aligned, data, bytes);
    if (gp_npy_parse(&npy, aligned, bytes, "input", &err) == GP_OK) {
        size_t needed = (size_t)gp_shape_count(&npy.shape) * gp_dtype_bytes(npy.dtype);

        if ((const uint8_t *)npy.data < aligned || (const uint8_t *)npy.data + needed > aligned + bytes)
            abort();
    } else if (err.message[0] == '\0') {
        abort();
    }
    gp_free(aligned);
}

static void idx_run(const uint8_t *data, size_t bytes, uint32_t rank)
{
    gp_error err = { GP_OK, "" };
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    size_t count = 1;
    gp_idx idx;

    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET) != 0)
        abort();
    if (gp_idx_read_fd(&idx, fd, "input", rank, &err) != GP_OK) {
        if (err.message[0] == '\0')
            abort();
        return;
    }
    for (uint32_t i = 0; i < rank; i++)
        count *= idx.dim[i];
    if (idx.rank != rank || idx.bytes != count)
        abort();
    gp_idx_deinit(&idx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t live = gp_alloc_get_stats().live;

    if (bytes > 0 && data[0] == 'c')
        csv_run(data + 1, bytes - 1);
    if (bytes > 0 && data[0] == 't')
        tar_run(data + 1, bytes - 1);
    if (bytes > 0 && data[0] == 'n')
        npy_run(data + 1, bytes - 1);
    if (bytes > 0 && (data[0] == 'i' || data[0] == 'I'))
        idx_run(data + 1, bytes - 1, data[0] == 'i' ? 1 : 3);
    if (gp_alloc_get_stats().live != live)
        abort();
    return 0;
}
