/* npy.h -- NumPy's array files: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3. */
#ifndef GP_NPY_H
#define GP_NPY_H

#include <stddef.h>

#include "common/base/memory/tensor.h"

enum { GP_NPY_HEADER_BYTES_MAX = 64 << 10 };

typedef struct gp_npy {
    gp_dtype dtype; /* GP_U8 (bool too), GP_I32, GP_I64, GP_F32, GP_F64; little-endian */
    gp_shape shape;
    const void *data; /* where the elements lie: C order, packed */
    void *map;        /* the file; read only */
    size_t map_bytes;
} gp_npy;

/* gp_npy_open -- map a file.  GP_ECORRUPT: no such header, a file that ends before its elements.
 * GP_EUNSUPPORTED: Fortran order, big-endian, another type; the message says what to do.  GP_ELIMIT: the rank. */
gp_status gp_npy_open(gp_npy *out, const char *path, gp_error *err);
/* The same of a file that is open; name is for errors. */
gp_status gp_npy_open_fd(gp_npy *out, int fd, const char *name, gp_error *err);
void gp_npy_close(gp_npy *npy); /* zeroed is fine */

/* gp_npy_parse -- the same over bytes that are there; out->map stays NULL.  data has to be aligned to 64 bytes. */
gp_status gp_npy_parse(gp_npy *out, const void *data, size_t bytes, const char *name, gp_error *err);

#endif
