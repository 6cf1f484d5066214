/* Create directories together with missing parents, and remove directories with their contents. */
#ifndef GP_DIRECTORY_H
#define GP_DIRECTORY_H

#include <sys/types.h>

#include "common/base/error.h"

/* Create a directory and all missing parents, like mkdir -p. Existing directories keep their mode.
 *   path  directory
 *   mode  permissions, reduced by the umask
 * GP_EIO: a directory cannot be created; the message names it and the reason. GP_ELIMIT: the path
 * is too long. */
gp_status gp_directory_make(const char *path, mode_t mode, gp_error *err);

/* Like gp_directory_make() for a file's parent directory. */
gp_status gp_directory_make_above(const char *path, mode_t mode, gp_error *err);

/* Remove a directory with its contents. Symbolic links are removed, not followed. The function
 * skips entries that it cannot remove. */
void gp_directory_remove(const char *path);

#endif
