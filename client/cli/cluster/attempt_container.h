/* Run an attempt of a job in a Kubernetes container. On Kubernetes the engine does not write to the
 * job folder.
 *
 * The attempt creates the folder on the volume itself; it reads the command from a file that the
 * Secret mounts. When it ends, it writes a termination message, which outlives the container. */
#ifndef GP_CLI_CLUSTER_ATTEMPT_CONTAINER_H
#define GP_CLI_CLUSTER_ATTEMPT_CONTAINER_H

#include "client/cluster/kubernetes_state.h"
#include "common/base/error.h"

/* Create the folder of the job, with its parents, and rename it into place when it is complete.
 * Keep a folder of an earlier attempt.
 *   command_file  file with the contents of command.json */
gp_status attempt_folder_create(const char *folder, const char *command_file, gp_error *err);

/* Write the termination message. A failure is only logged, because the exit code still reaches
 * Kubernetes. */
void attempt_message_write(const char *path, const kubernetes_message *message);

/* Write the termination message of a process that could not start an attempt. The message contains
 * the result of the job if an earlier attempt has written one, otherwise the error `why`. */
void attempt_message_refused(const char *path, const char *folder, const gp_error *why, int code);

#endif
