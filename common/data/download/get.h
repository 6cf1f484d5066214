/* get.h -- download known data sets and models: checked by size and sum, whole or not there. */
#ifndef GP_GET_H
#define GP_GET_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct gp_get_file {
    const char *name;
    uint64_t bytes; /* 0: not known */
    /* As published: 32 hexadecimal digits (MD5) or 64 (SHA-256), in lower case.  NULL: not known; then whatever the
     * server says is the whole file is believed. */
    const char *sum;
} gp_get_file;

typedef struct gp_get_set {
    const char *name, *about; /* "fashion-mnist"; one line for people */
    const char *url;          /* files are at URL/NAME */
    const gp_get_file *files;
    size_t file_count;
    const char *mirror; /* environment variable that names another URL; NULL: none */
} gp_get_set;

/* Called now and then from within the download; other than 0 ends it with GP_ECANCELED. */
typedef int gp_get_progress(void *context, const char *file, uint64_t bytes, uint64_t bytes_total);

/* All fields may be 0. */
typedef struct gp_get_options {
    const char *url;       /* a mirror; 0: what the set's variable names, else the set's own */
    const char *directory; /* where to; 0: gp_cache_path() of "data" */
    uint32_t tries;        /* for each file; 0: 4 */
    uint32_t wait_ms;      /* before the second try, doubled for each further; 0: 1000 */
    uint32_t connect_s;    /* to connect; 0: 10 */
    uint32_t stall_s;      /* without a byte; 0: 30 */
    gp_get_progress *progress;
    void *context;
} gp_get_options;

/* The known data sets; ends with a name of NULL. */
extern const gp_get_set gp_get_sets[];

/* The known models, trained, one ONNX file each; the same. */
extern const gp_get_set gp_get_models[];

enum { GP_GET_SUM_BYTES = 65 }; /* of a sum's text, with the NUL */

/* The SHA-256 sum of a file. */
gp_status gp_get_sum(char sum[GP_GET_SUM_BYTES], const char *path, gp_error *err);

/* gp_get -- fetch the data set of that name; options may be NULL.
 *
 * A file that is there with the right sum is left alone.  A broken transfer goes on where it ended if the server can;
 * the bytes so far are in FILE.part, which a failed call removes.  Only http and https, at most 5 redirects.
 * GP_EINVAL: no such data set.  GP_EIO: not to be had; the message has the URL and what was seen.
 * GP_ECORRUPT: the server's file is another one.  GP_ESTATE: another file of that name is there already.
 * GP_EBUSY: another process fetches it.  GP_ECANCELED: progress said so. */
gp_status gp_get(const char *name, const gp_get_options *options, gp_error *err);

/* The same for a table of one's own. */
gp_status gp_get_fetch(const gp_get_set *set, const gp_get_options *options, gp_error *err);

#endif
