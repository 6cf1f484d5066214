/* S3 options for commands that read data.
 *
 * The options become part of the source URL (common/data/s3/s3_source.h). They therefore reach
 * every user of the source: workers, queued jobs, and splits of an image list. */
#ifndef GP_CLI_S3_OPTIONS_H
#define GP_CLI_S3_OPTIONS_H

#include <stdbool.h>

#include "common/base/text/params.h"

/* S3 option values; "": not given. */
typedef struct cli_s3 {
    char endpoint[256], region[64], profile[64], cache[32];
    int path_style; /* 0: not given, 1: yes, 2: no */
    bool anonymous;
} cli_s3;

extern const gp_param cli_s3_options[]; /* cli_s3 option table */

struct cli_call;

/* Merge the S3 options into the sources of the call: the options listed in cli_command.sources, or
 * else the first s3:// word. Do nothing if no S3 option is given.
 *
 * GP_EINVAL: a source or option is malformed, or no source begins with s3://. */
gp_status cli_s3_apply(struct cli_call *call, gp_error *err);

#endif
