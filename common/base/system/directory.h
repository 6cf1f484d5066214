/* directory.h -- directories made together with those above them. */
#ifndef GP_DIRECTORY_H
#define GP_DIRECTORY_H

#include <sys/types.h>

#include "common/base/error.h"

/* gp_directory_make -- path and whatever is missing above it, with this mode less the umask, as mkdir -p does.  One that is
 * there keeps its mode.  GP_EIO: which one could not be made, and why; GP_ELIMIT: the path is too long. */
gp_status gp_directory_make(const char *path, mode_t mode, gp_error *err);

/* gp_directory_make_above -- the same for all but the last name of the path, which is to be a file's. */
gp_status gp_directory_make_above(const char *path, mode_t mode, gp_error *err);

#endif
