/* Read and write NumPy array files, format versions 1 to 3:
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#ifndef GP_NPY_H
#define GP_NPY_H

#include <stddef.h>

#include "common/base/memory/tensor.h"

enum {
    GP_NPY_HEADER_BYTES_MAX = 64 << 10,
    GP_NPY_WRITTEN_MAX = 256, /* size of the largest header that gp_npy_header() writes */
};

/* An array, mapped from a file or in memory owned by the caller. */
typedef struct gp_npy {
    gp_dtype dtype; /* GP_U8 (also for bool), GP_I32, GP_I64, GP_F32, GP_F64; little-endian */
    gp_shape shape;
    const void *data; /* the elements: packed, C order */
    void *map;        /* read-only mapping of the file; NULL: the memory belongs to the caller */
    size_t map_bytes;
} gp_npy;

/* Map a file. Release with gp_npy_close().
 *
 *   GP_ENOENT: the file does not exist
 *   GP_ECORRUPT: malformed header, or too few elements
 *   GP_EUNSUPPORTED: Fortran order, big-endian, or another type; the message has a remedy
 *   GP_ELIMIT: too many dimensions */
gp_status gp_npy_open(gp_npy *out, const char *path, gp_error *err);
/* Map an open file; the caller keeps the descriptor. `name` is used in messages. */
gp_status gp_npy_open_fd(gp_npy *out, int fd, const char *name, gp_error *err);
void gp_npy_close(gp_npy *npy); /* accepts an all-zero struct */

/* Parse an array already in memory; out->map stays NULL. `data` must be aligned to 64 bytes. */
gp_status gp_npy_parse(gp_npy *out, const void *data, size_t bytes, const char *name, gp_error *err);

/* Write the header of a file with these elements, which follow it. Return the size: a multiple of
 * 64. 0: the format has no such element type. */
size_t gp_npy_header(unsigned char out[GP_NPY_WRITTEN_MAX], gp_dtype dtype, const gp_shape *shape);

#endif
