/* S3 options for commands that read data, and their merge into the s3:// sources on the command
 * line. */
#include "client/cli/s3_options.h"

#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"

static const char *const style_names[] = { "auto", "yes", "no", NULL };

const gp_param cli_s3_options[] = {
    { .name = "s3-endpoint",
      GP_PARAM_FIELD(cli_s3, endpoint),
      .placeholder = "URL",
      .help = "endpoint of a service other than AWS, http://HOST:PORT or https://HOST (default: "
              "$AWS_ENDPOINT_URL)" },
    { .name = "s3-region",
      GP_PARAM_FIELD(cli_s3, region),
      .help = "region of the bucket (default: $AWS_REGION, then the profile, then us-east-1)" },
    { .name = "s3-path-style",
      GP_PARAM_FIELD(cli_s3, path_style),
      .words = style_names,
      .help = "address objects as HOST/BUCKET/KEY instead of BUCKET.HOST/KEY; auto: with an endpoint" },
    { .name = "s3-profile",
      GP_PARAM_FIELD(cli_s3, profile),
      .help = "profile of ~/.aws/credentials (default: $AWS_PROFILE)" },
    { .name = "s3-anonymous",
      GP_PARAM_FIELD(cli_s3, anonymous),
      .help = "do not sign requests (public bucket)" },
    { .name = "s3-cache",
      GP_PARAM_FIELD(cli_s3, cache),
      .help = "size of the disk cache, such as 20GiB; 0: no cache (default: 8GiB)" },
    { 0 },
};

/* Add `options` to an S3 source. Options already in the source stand later in the query string and
 * take precedence. */
static gp_status source_complete(char *source, size_t bytes, const char *options, gp_error *err)
{
    char both[2 * GP_S3_SOURCE_BYTES_MAX], bare[GP_S3_SOURCE_BYTES_MAX];
    gp_s3_source parsed;
    gp_status status = gp_s3_source_parse(&parsed, source, err);

    if (status == GP_OK)
        status = gp_s3_source_format(&parsed, true, bare, sizeof(bare), err);
    if (status != GP_OK)
        return status;
    snprintf(both, sizeof(both), "%s?%s%s%s", bare, options,
             strchr(source + strlen(bare), '?') == NULL ? "" : "&",
             strchr(source + strlen(bare), '?') == NULL ? "" : strrchr(source, '?') + 1);
    status = gp_s3_source_parse(&parsed, both, err);
    return status == GP_OK ? gp_s3_source_format(&parsed, false, source, bytes, err) : status;
}

gp_status cli_s3_apply(cli_call *call, gp_error *err)
{
    char options[800] = "", value[256];
    bool applied = false;
    size_t used = 0;
    gp_status status = GP_OK;

    /* format the given options as a source query string ("region=...&anonymous=yes") */
    for (const gp_param *param = cli_s3_options; param->type != GP_PARAM_NONE; param++)
        if (gp_params_changed(param, &call->s3))
            used += (size_t)snprintf(options + used, sizeof(options) - used, "%s%s=%s", used == 0 ? "" : "&",
                                     param->name + strlen("s3-"),
                                     param->type == GP_PARAM_BOOL
                                         ? "yes"
                                         : gp_params_format(param, &call->s3, value, sizeof(value)));
    if (used == 0)
        return GP_OK;
    for (const char *const *name = call->command->sources; *name != NULL && status == GP_OK; name++) {
        const gp_param *param = gp_params_find(call->command->options, *name);
        char *source = (char *)call->options + param->offset;

        if (gp_s3_is(source)) {
            status = source_complete(source, param->count, options, err);
            applied = true;
        }
    }
    for (int i = 0; i < call->word_count && status == GP_OK && !applied; i++)
        if (gp_s3_is(call->words[i])) {
            snprintf(call->source, sizeof(call->source), "%s", call->words[i]);
            status = source_complete(call->source, sizeof(call->source), options, err);
            call->words[i] = call->source;
            applied = true;
        }
    if (status == GP_OK && !applied)
        status =
            gp_fail(err, GP_EINVAL, "S3 options (%s) have no effect: no source starts with s3://", options);
    return status;
}
