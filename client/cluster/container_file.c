/* Implement container_file.h. */
#include "client/cluster/container_file.h"

#include <stdio.h>
#include <string.h>

#include "client/cluster/kubernetes_manifest.h"
#include "client/cluster/profile.h"

gp_status container_file_request(ssh_request *out, const gp_profile *profile, const char *name,
                                 const char *path, gp_error *err)
{
    char folder[CLUSTER_COMMAND_BYTES];
    gp_status status = kubernetes_folder(folder, profile, name, err);

    *out = (ssh_request){ .verb = "read", .host = "pod" };
    if (status != GP_OK)
        return status;
    if (!ssh_file_valid(path) ||
        (size_t)snprintf(out->file, sizeof(out->file), "%s", path) >= sizeof(out->file))
        return gp_fail(err, GP_EINVAL, "'%.80s' is not a file of a job folder", path);
    *strrchr(folder, '/') = '\0';
    if ((size_t)snprintf(out->folder, sizeof(out->folder), "%s", folder) >= sizeof(out->folder))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", folder);
    snprintf(out->name, sizeof(out->name), "%s", name);
    return GP_OK;
}

gp_status container_file_read(const kubectl_call *call, const char *pod, const ssh_request *request, void *to,
                              size_t *got, gp_error *err)
{
    cluster_tool_result result;
    ssh_reply reply;
    gp_buffer input;
    bool greeted;
    gp_status status;

    gp_buffer_init(&input, SSH_REQUEST_MAX);
    status = ssh_request_format(request, NULL, 0, &input, err);
    if (status == GP_OK)
        status = kubectl(
            &result, call,
            VERB("exec", "-i", pod, "--container=gradpool", "--", call->profile->gradpool, "ssh-host"),
            &input, SSH_REPLY_MAX, err);
    gp_buffer_deinit(&input);
    if (status != GP_OK)
        return status;
    status = ssh_reply_parse(&reply, gp_buffer_text(&result.output), result.output.bytes, &greeted, err);
    if (status == GP_OK) {
        status = ssh_reply_status(&reply, err);
        if (status == GP_OK && reply.bytes > (size_t)request->count)
            status = gp_fail(err, GP_EPEER, "the container sent more bytes than requested");
        if (status == GP_OK) {
            memcpy(to, reply.data, reply.bytes);
            *got = reply.bytes;
        }
        ssh_reply_deinit(&reply);
    }
    cluster_tool_deinit(&result);
    return status;
}
