/* s3_options.h -- options of commands that read data: where it lies in S3.  They become the options of the source
 * (common/data/s3/s3_source.h), so they go wherever the source goes: to the workers, into a job, into a list that was split. */
#ifndef GP_CLI_S3_OPTIONS_H
#define GP_CLI_S3_OPTIONS_H

#include <stdbool.h>

#include "common/base/text/params.h"

typedef struct cli_s3 {
    char endpoint[256], region[64], profile[64], cache[32];
    int path_style; /* 0: not said, 1: yes, 2: no */
    bool anonymous;
} cli_s3;

extern const gp_param cli_s3_options[]; /* of a cli_s3 */

struct cli_call;

/* cli_s3_apply -- put them into the sources of the call: its command's `sources`.
 * GP_EINVAL: a malformed one, or options and no source in S3 that they could be of. */
gp_status cli_s3_apply(struct cli_call *call, gp_error *err);

#endif
