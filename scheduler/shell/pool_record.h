/* Pool record for the next scheduler after a crash: number of workers, devices and inherited
 * process attributes (process_env.h).
 *
 * The file is in the pool directory. A scheduler that shuts down removes it. If the file exists and
 * no scheduler runs, the last one crashed (proto/local/paths.h: paths->record). */
#ifndef GP_POOL_RECORD_H
#define GP_POOL_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/local/paths.h"

enum { GP_POOL_RECORD_BYTES_MAX = 128 << 10 };

typedef struct gp_pool_record {
    uint32_t workers;
    int64_t idle_ms, suspect_ms, silence_ms;   /* as in gp_shell_options */
    char devices[256];                         /* as in --devices; "": auto */
    char resources[GP_TEXT_RESOURCES_SETTING]; /* as in --resource; "": none */
    char listen[GP_TEXT_ENDPOINT];             /* endpoint for other hosts; "": none */
    char owner[40];                            /* as in --owner; "": none */
    bool temporary;                            /* as in gp_owner; only with an owner */
    /* lines in the format of process_env.h; NULL: none. Free those from gp_pool_record_read() with
     * gp_free(). */
    char *process_env;
} gp_pool_record;

/* Read the record. False: missing or malformed. */
bool gp_pool_record_read(gp_pool_record *out, const gp_paths *paths);

/* Write the record atomically, through a temporary file and rename(). */
gp_status gp_pool_record_write(const gp_pool_record *record, const gp_paths *paths, gp_error *err);

#endif
