/* Files of a job folder in a running container of Kubernetes, read by `gradpool ssh-host` as over
 * ssh. */
#ifndef GP_CLUSTER_CONTAINER_FILE_H
#define GP_CLUSTER_CONTAINER_FILE_H

#include "client/cluster/kubectl.h"
#include "client/cluster/ssh_wire.h"

/* Fill in a request for a file of the folder of a job, without offset and count. GP_EINVAL: the
 * path leaves the folder. GP_ELIMIT. */
gp_status container_file_request(ssh_request *out, const gp_profile *profile, const char *name,
                                 const char *path, gp_error *err);

/* Read the piece that the request names. `to` has room for request->count bytes; *got is set to the
 * number of bytes read. */
gp_status container_file_read(const kubectl_call *call, const char *pod, const ssh_request *request, void *to,
                              size_t *got, gp_error *err);

#endif
