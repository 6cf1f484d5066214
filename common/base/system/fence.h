/* Fence: keep an outdated attempt of a cluster job from writing.
 *
 * A cluster can start a job again while processes of the previous attempt are still alive, for
 * example on a node that lost its network. Each attempt therefore takes a number: it creates the
 * directory attempts/NUMBER in the job folder (client/cluster/job_folder.h), and stores the number
 * in the file `newest`. A process checks both right before it makes a write visible to other
 * attempts: a checkpoint, a result or log text. The directory alone would do on a local file
 * system, but NFS clients may remember for a minute that a name does not exist.
 *
 * The check and the write are two operations. A process that is suspended between them can still
 * complete this one write after it resumes. */
#ifndef GP_FENCE_H
#define GP_FENCE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

/* Environment variable that passes the fence to the processes of an attempt: NUMBER:FILE. */
#define GP_FENCE_VARIABLE "GRADPOOL_FENCE"

enum { GP_FENCE_BYTES = PATH_MAX + 16 }; /* size of the variable's value */

/* Return whether this process belongs to a cluster job: the variable is set. */
bool gp_fence_given(void);

/* The attempt that this process belongs to. number 0: this process belongs to no cluster job and
 * may always write. */
typedef struct gp_fence {
    uint32_t number;
    char file[PATH_MAX]; /* FOLDER/newest: the newest attempt number as a decimal text */
} gp_fence;

/* Parse the environment variable. GP_EINVAL: it is malformed. */
gp_status gp_fence_open(gp_fence *out, gp_error *err);

/* Read the newest attempt number from a file. The function opens the file each time, because NFS
 * clients revalidate cached files when they are opened. GP_ENOENT: no attempt has started. GP_EIO:
 * the file cannot be read. GP_ECORRUPT: the file holds no number. */
gp_status gp_fence_read(uint32_t *newest, const char *file, gp_error *err);

/* Check that no newer attempt has started. GP_ESTALE: a newer attempt has started. GP_EIO,
 * GP_ENOENT, GP_ECORRUPT: the newest attempt is unknown, so this process must not write either. */
gp_status gp_fence_check(const gp_fence *fence, gp_error *err);

/* Like gp_fence_check() for the fence in the environment of this process. GP_OK: also without the
 * variable. GP_EINVAL: the variable is malformed. */
gp_status gp_fence_check_process(gp_error *err);

#endif
