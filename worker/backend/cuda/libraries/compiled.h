/* Disk cache of cuDNN plans that took seconds to compile, for later processes.
 *
 * cuDNN serialises a plan as JSON, including a compiled kernel, and loads it in milliseconds (9.19
 * on H200: 10 s to compile, 9 ms to load). Each plan is a file in a cache
 * (common/base/system/cached.h): one line with the libraries and the device kind, one line with
 * operation and engine, then the JSON. */
#ifndef GP_CUDA_COMPILED_H
#define GP_CUDA_COMPILED_H

#include <stddef.h>

enum { GP_COMPILED_BYTES_MAX = 4 << 20, GP_COMPILED_FILES_MAX = 512, GP_COMPILED_WHAT_BYTES = 320 };

/* A compiled-plan cache. */
typedef struct gp_compiled {
    const char *directory; /* NULL: no cache */
    const char *libraries; /* one line */
} gp_compiled;

/* Read a plan. `what`: operation and engine, one line. The caller frees the result with gp_free().
 * NULL: missing or invalid. */
char *gp_compiled_read(const gp_compiled *kept, const char *what, size_t *bytes);

/* Write a plan; the oldest files are deleted. Failures are ignored, because they only cost time
 * later. */
void gp_compiled_write(const gp_compiled *kept, const char *what, const char *json, size_t bytes);

/* Delete a plan that cuDNN could not load. */
void gp_compiled_forget(const gp_compiled *kept, const char *what);

#endif
