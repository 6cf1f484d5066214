/* Kubernetes objects of a job.
 *
 * A Secret contains the command of the job, because the values of `submit --env` may be secret. A
 * Job contains everything else: it runs `gradpool job-attempt` in a pod, which mounts the Secret as
 * a file. Both are named like the launch, so creating them twice is harmless. */
#ifndef GP_CLUSTER_KUBERNETES_MANIFEST_H
#define GP_CLUSTER_KUBERNETES_MANIFEST_H

#include <stdbool.h>

#include "client/cluster/engine.h"
#include "client/cluster/profile.h"
#include "common/base/error.h"
#include "common/base/memory/buffer.h"

enum {
    KUBERNETES_MANIFEST_MAX = 8 << 20, /* bytes */
    KUBERNETES_GRACE_S = 120,          /* from SIGTERM to SIGKILL: a step and a checkpoint */
    KUBERNETES_DEADLINE_S = 900,       /* added to the time limit, which the job itself observes */
    KUBERNETES_KEEP_S = 7 * 24 * 3600, /* an ended Job is removed after this time */
};

/* Append the Secret as JSON.
 *   hide  write no values, for people to read */
gp_status kubernetes_secret_format(const gp_profile *profile, const cluster_launch *launch, bool hide,
                                   gp_buffer *out, gp_error *err);

/* Append the Job as JSON. Fails with GP_EINVAL as kubernetes_profile_check(). */
gp_status kubernetes_job_format(const gp_profile *profile, const cluster_launch *launch, gp_buffer *out,
                                gp_error *err);

/* Return the path of the volume of the profile, or of the temporary volume of a profile without
 * one. It is also the default of the working directory. */
const char *kubernetes_volume_path(const gp_profile *profile);

/* Set `folder` to the folder of a job in its container. */
gp_status kubernetes_folder(char folder[CLUSTER_COMMAND_BYTES], const gp_profile *profile, const char *name,
                            gp_error *err);

/* Check settings that depend on each other. GP_EINVAL: `folder` is outside the volume, or a label
 * is one that gradpool sets. */
gp_status kubernetes_profile_check(const gp_profile *profile, gp_error *err);

/* Refuse a job that would write a model, checkpoints or results into the container, which
 * Kubernetes removes at the end of the pod.
 *   directory  working directory of the job
 *   words      command of the job, without "gradpool"
 * GP_EINVAL: the message names the option and the fix. */
gp_status kubernetes_job_check(const gp_profile *profile, const char *directory, const char *const *words,
                               size_t count, gp_error *err);

#endif
