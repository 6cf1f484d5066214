/* Implement attempt_container.h. */
#include "client/cli/cluster/attempt_container.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cluster/job_folder.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"

enum { HOST_BYTES = 65 };

/* Remove a folder that cluster_folder_create() has created. */
static void folder_remove(const char *folder)
{
    static const char *const files[] = { "command.json", "attempts" };
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, files[i]) < sizeof(path))
            remove(path);
    rmdir(folder);
}

gp_status attempt_folder_create(const char *folder, const char *command_file, gp_error *err)
{
    char draft[PATH_MAX], host[HOST_BYTES] = "";
    uint8_t *command = NULL;
    size_t bytes;
    gp_status status;

    if (access(folder, F_OK) == 0)
        return GP_OK;
    /* The host name is the name of the pod, which is unique: no other process uses this draft. */
    gethostname(host, sizeof(host) - 1);
    if ((size_t)snprintf(draft, sizeof(draft), "%s.%s-%d", folder, host, (int)getpid()) >= sizeof(draft))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", folder);
    status = gp_directory_make_above(folder, 0700, err);
    if (status == GP_OK)
        status = gp_file_read(&command, &bytes, command_file, CLUSTER_COMMAND_JSON_MAX, err);
    if (status == GP_OK) {
        folder_remove(draft); /* left by a container that was restarted */
        status = cluster_folder_create(draft, (const char *)command, bytes, err);
    }
    if (status == GP_OK && rename(draft, folder) != 0) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            status = gp_fail_errno(err, GP_EIO, "cannot create the job's folder %s", folder);
        folder_remove(draft);
    }
    gp_free(command);
    return status;
}

void attempt_message_write(const char *path, const kubernetes_message *message)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    gp_buffer text;

    /* Kubernetes creates the file as root; open() with O_CREAT may be refused for such a file. */
    if (fd < 0 && errno == ENOENT)
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    gp_buffer_init(&text, KUBERNETES_MESSAGE_BYTES);
    if (fd < 0 || kubernetes_message_format(message, &text, NULL) != GP_OK ||
        !gp_write_all(fd, text.data, text.bytes))
        fprintf(stderr, "gradpool: cannot write the termination message %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    gp_buffer_deinit(&text);
}

void attempt_message_refused(const char *path, const char *folder, const gp_error *why, int code)
{
    kubernetes_message message = { .has_result = why->code != GP_ESTALE, .exit_code = code };
    cluster_facts facts;

    snprintf(message.reason, sizeof(message.reason), "%.150s", why->message);
    if (why->code == GP_ESTALE && cluster_folder_facts(folder, &facts, NULL) == GP_OK && facts.has_result) {
        message.attempt = facts.result_attempt;
        message.has_result = true;
        message.exit_code = facts.exit_code & 255;
        snprintf(message.reason, sizeof(message.reason), "%s", facts.reason);
    }
    attempt_message_write(path, &message);
}
