/* Implement kubectl.h. */
#include "client/cluster/kubectl.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FLOOR_MS = 100 }; /* no command begins with less time left */

void kubectl_words(const char *words[KUBECTL_WORDS], char options[KUBECTL_OPTIONS][KUBECTL_OPTION_BYTES],
                   const gp_profile *profile, const char *const *verb)
{
    size_t count = 0;

    words[count++] = profile->kubectl;
    snprintf(options[0], sizeof(options[0]), "--context=%s", profile->context);
    snprintf(options[1], sizeof(options[1]), "--namespace=%s", profile->kubernetes_namespace);
    if (profile->context[0] != '\0')
        words[count++] = options[0];
    if (profile->kubernetes_namespace[0] != '\0')
        words[count++] = options[1];
    words[count++] = "--request-timeout=20s";
    for (size_t i = 0; verb[i] != NULL && count < KUBECTL_WORDS - 1; i++)
        words[count++] = verb[i];
    words[count] = NULL;
}

/* Return whether standard error of kubectl has one of these texts. */
static bool says(const cluster_tool_result *result, const char *const *texts)
{
    for (; *texts != NULL; texts++)
        if (strstr(gp_buffer_text(&result->errors), *texts) != NULL)
            return true;
    return false;
}

/* Set *err to the failure of a command. Return the status that kubectl() returns for it. */
static gp_status kubectl_fail(const cluster_tool *tool, const cluster_tool_result *result, gp_error *err)
{
    static const char *const exists[] = { "(AlreadyExists)", NULL }, *const absent[] = { "(NotFound)", NULL };
    static const char *const refused[] = {
        /* replies of the server */
        "(Forbidden)", "(Invalid)", "(BadRequest)", "(Unauthorized)", "(MethodNotAllowed)",
        "(RequestEntityTooLarge)", "no matches for kind", "the server doesn't have a resource type",
        "You must be logged in to the server",
        /* the request was not sent */
        "error validating", "strict decoding error", "error: context ", "invalid configuration",
        "getting credentials", "x509:", "dial tcp", "was refused - did you specify", NULL
    };

    if (result->code > 128)
        return cluster_tool_fail(err, GP_EPEER, tool, result);
    return cluster_tool_fail(err,
                             says(result, exists)    ? GP_EBUSY
                             : says(result, absent)  ? GP_ENOENT
                             : says(result, refused) ? GP_EPERM
                                                     : GP_EPEER,
                             tool, result);
}

gp_status kubectl(cluster_tool_result *out, const kubectl_call *call, const char *const *verb,
                  const gp_buffer *input, size_t output_max, gp_error *err)
{
    const int64_t left_ms = gp_timeout_left(call->timeout);
    char options[KUBECTL_OPTIONS][KUBECTL_OPTION_BYTES];
    const char *words[KUBECTL_WORDS];
    cluster_tool tool = {
        .words = words, .drop = cluster_job_variables, .output_max = output_max, .timeout_ms = (int)left_ms
    };
    gp_status status;

    if (left_ms < FLOOR_MS)
        return gp_fail(err, GP_ETIMEDOUT, "earlier commands of kubectl took too long");
    if (input != NULL) {
        tool.input = gp_buffer_text(input);
        tool.input_bytes = input->bytes;
    }
    kubectl_words(words, options, call->profile, verb);
    status = cluster_tool_run(out, &tool, err);
    if (status == GP_ENOENT)
        return err != NULL ? (err->code = GP_EUNSUPPORTED) : GP_EUNSUPPORTED;
    if (status == GP_ELIMIT)
        return err != NULL ? (err->code = GP_EPEER) : GP_EPEER;
    if (status == GP_OK && out->code != 0) {
        status = kubectl_fail(&tool, out, err);
        cluster_tool_deinit(out);
    }
    return status;
}

gp_status kubectl_do(const kubectl_call *call, const char *const *verb, gp_error *err)
{
    cluster_tool_result result;
    gp_status status = kubectl(&result, call, verb, NULL, KUBECTL_REPLY_MAX, err);

    if (status == GP_OK)
        cluster_tool_deinit(&result);
    return status;
}
