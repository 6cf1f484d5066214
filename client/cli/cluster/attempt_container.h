/* An attempt of a job in a container of Kubernetes, whose engine writes nothing to the job folder.
 *
 * The attempt itself creates the folder on the volume, from the file with the command that the
 * Secret mounts. At its end it leaves a termination message, which outlives the container. */
#ifndef GP_CLI_CLUSTER_ATTEMPT_CONTAINER_H
#define GP_CLI_CLUSTER_ATTEMPT_CONTAINER_H

#include "client/cluster/kubernetes_state.h"
#include "common/base/error.h"

/* Create the folder of the job, with its parents. It appears complete, by a rename. An existing
 * folder, of an earlier attempt, is kept.
 *   command_file  file with the contents of command.json */
gp_status attempt_folder_create(const char *folder, const char *command_file, gp_error *err);

/* Write the termination message. Failures are logged: the exit code remains. */
void attempt_message_write(const char *path, const kubernetes_message *message);

/* Write the termination message of a process that did not become an attempt: with the result of the
 * job if an earlier attempt has written it, else with the error. */
void attempt_message_refused(const char *path, const char *folder, const gp_error *why, int code);

#endif
