/* tar.h -- what members a tar archive has: POSIX ustar, pax and GNU long names; not compressed. */
#ifndef GP_TAR_H
#define GP_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_TAR_NAME_BYTES_MAX = 4096 };

/* A regular file or a link of an archive. */
typedef struct gp_tar_entry {
    const char *name;
    const char *link; /* what a hard or symbolic link points to, as the archive says; NULL: a regular file */
    bool symbolic;    /* with link: a symbolic link */
    uint64_t offset, bytes; /* where the file's contents are; links have none */
} gp_tar_entry;

/* Take one entry, valid during the call. Anything but GP_OK ends the walk. */
typedef gp_status (*gp_tar_member)(void *context, const gp_tar_entry *entry, gp_error *err);

/* Where an archive's bytes are: exactly so many from there, or an error. */
typedef struct gp_tar_source {
    gp_status (*read)(void *context, uint64_t at, void *to, size_t bytes, gp_error *err);
    void *context;
    uint64_t bytes; /* of the archive */
} gp_tar_source;

/* gp_tar_walk -- call for each regular file and each link, in the archive's order.
 * GP_ECORRUPT: a header with a wrong sum, a member beyond the end; the message has `name` and the byte.
 * GP_EUNSUPPORTED: compressed.  GP_ELIMIT: a name that is too long. */
gp_status gp_tar_walk(int fd, const char *name, gp_tar_member member, void *context, gp_error *err);

/* The same over an archive that is no file. */
gp_status gp_tar_walk_source(const gp_tar_source *source, const char *name, gp_tar_member member,
                             void *context, gp_error *err);

#endif
