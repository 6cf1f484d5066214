/* compiled.h -- plans of cuDNN that took seconds to compile, on disk, for the next process.
 *
 * cuDNN writes a plan as JSON, with its kernel in it if it was compiled, and reads that back in milliseconds (asked of 9.19
 * for an H200: 10 s and 9 ms).  A file of a cache (common/base/system/cached.h) for each: the libraries and the kind of device, what the plan
 * computes and by which engine, a line each, and the JSON, which is good for nothing else. */
#ifndef GP_CUDA_COMPILED_H
#define GP_CUDA_COMPILED_H

#include <stddef.h>

enum { GP_COMPILED_BYTES_MAX = 4 << 20, GP_COMPILED_FILES_MAX = 512, GP_COMPILED_WHAT_BYTES = 320 };

typedef struct gp_compiled {
    const char *directory; /* NULL: nothing is kept */
    const char *libraries; /* a line */
} gp_compiled;

/* NULL: there is none, or none that holds; freed with gp_free().  what: a line. */
char *gp_compiled_read(const gp_compiled *kept, const char *what, size_t *bytes);
/* The oldest go.  That it cannot be written costs the next process its time, and nothing else. */
void gp_compiled_write(const gp_compiled *kept, const char *what, const char *json, size_t bytes);
/* It was read, and does not run. */
void gp_compiled_forget(const gp_compiled *kept, const char *what);

#endif
