/* Download known data sets and models. Files are verified by size and checksum, and appear only
 * when complete. */
#ifndef GP_GET_H
#define GP_GET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* A file of a data set, as published. */
typedef struct gp_get_file {
    const char *name;
    uint64_t bytes; /* 0: unknown */
    /* Published checksum in lower case: 32 hexadecimal digits (MD5) or 64 (SHA-256). NULL: unknown;
     * any complete transfer is accepted. */
    const char *sum;
} gp_get_file;

/* A downloadable data set or model. */
typedef struct gp_get_set {
    const char *name, *about; /* short name such as "fashion-mnist"; one-line description */
    const char *url;          /* base URL; each file is at url/name */
    const gp_get_file *files;
    size_t file_count;
    const char *mirror; /* environment variable with an alternative URL; NULL: none */
} gp_get_set;

/* Report progress during a download. A return value other than 0 cancels it with GP_ECANCELED. */
typedef int gp_get_progress(void *context, const char *file, uint64_t bytes, uint64_t bytes_total);

/* Download options; 0 selects the default. */
typedef struct gp_get_options {
    const char *url;       /* base URL; 0: from the set's mirror variable, else the set's own */
    const char *directory; /* destination; 0: gp_cache_path() of "data" */
    uint32_t tries;        /* attempts per file; 0: 4 */
    uint32_t wait_ms;      /* delay before the first retry, then doubled each time; 0: 1000 */
    uint32_t connect_s;    /* connect timeout; 0: 10 */
    uint32_t stall_s;      /* timeout without data; 0: 30 */
    bool keep_part;        /* keep FILE.part of a broken download for the next call, see gp_get() */
    gp_get_progress *progress;
    void *context;
} gp_get_options;

/* Known data sets; a NULL name ends the list. */
extern const gp_get_set gp_get_sets[];

/* Known trained models, one ONNX file each; a NULL name ends the list. */
extern const gp_get_set gp_get_models[];

enum { GP_GET_SUM_BYTES = 65 }; /* checksum as text, with the NUL */

/* Compute the SHA-256 checksum of a file. */
gp_status gp_get_sum(char sum[GP_GET_SUM_BYTES], const char *path, gp_error *err);

/* Download the data set `name`. options may be NULL.
 *
 * A file that already has the right checksum is kept. An interrupted transfer is resumed if the
 * server supports it. Partial data is in FILE.part. If the call fails, FILE.part is removed; with
 * keep_part it remains if a checksum is known, and the next call resumes it. Only http and https
 * are used, with at most 5 redirects.
 *
 *   GP_EINVAL: unknown data set
 *   GP_EIO: the download failed; the message has the URL and the cause
 *   GP_ECORRUPT: the server's file differs from the published one
 *   GP_ESTATE: a different file with this name exists already
 *   GP_EBUSY: another process is downloading the file
 *   GP_ECANCELED: the progress callback cancelled */
gp_status gp_get(const char *name, const gp_get_options *options, gp_error *err);

/* Download a set from the caller's own table; otherwise like gp_get(). */
gp_status gp_get_fetch(const gp_get_set *set, const gp_get_options *options, gp_error *err);

#endif
