/* List the members of an uncompressed tar archive: POSIX ustar, pax, and GNU long names. */
#ifndef GP_TAR_H
#define GP_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_TAR_NAME_BYTES_MAX = 4096 };

/* A regular file or a link in an archive. */
typedef struct gp_tar_entry {
    const char *name;
    const char *link;       /* target of a hard or symbolic link, as stored; NULL: a regular file */
    bool symbolic;          /* if link is set: true for a symbolic link */
    uint64_t offset, bytes; /* position and size of the file contents; 0 for links */
    bool sparse;            /* the contents lack the holes, so they are not those of the file */
} gp_tar_entry;

/* Receive one entry, valid only during the call. A status other than GP_OK ends the walk. */
typedef gp_status (*gp_tar_member)(void *context, const gp_tar_entry *entry, gp_error *err);

/* Access to archive bytes. read() either fills `to` with exactly `bytes` bytes from position `at`,
 * or fails. */
typedef struct gp_tar_source {
    gp_status (*read)(void *context, uint64_t at, void *to, size_t bytes, gp_error *err);
    void *context;
    uint64_t bytes; /* archive size */
} gp_tar_source;

/* Call `member` for each regular file and each link, in archive order.
 *
 *   GP_ECORRUPT: a wrong header checksum, or a member beyond the end; the message has `name` and
 *                the byte position
 *   GP_EUNSUPPORTED: the archive is compressed
 *   GP_ELIMIT: a name is too long */
gp_status gp_tar_walk(int fd, const char *name, gp_tar_member member, void *context, gp_error *err);

/* Walk an archive that is not a local file; otherwise like gp_tar_walk(). */
gp_status gp_tar_walk_source(const gp_tar_source *source, const char *name, gp_tar_member member,
                             void *context, gp_error *err);

#endif
