/* file.h -- files read and written whole, however little of them the kernel takes at once. */
#ifndef GP_FILE_H
#define GP_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"

/* gp_file_open -- open a regular file for reading; *bytes is its size. Never waits for the writer of a FIFO.
 * GP_ENOENT, GP_EIO.  GP_ELIMIT: not a regular file, or larger than bytes_max. */
gp_status gp_file_open(int *out, size_t *bytes, const char *path, size_t bytes_max, gp_error *err);

/* gp_file_read -- read a whole regular file; *data is freed with gp_free(). Errors as of gp_file_open(). */
gp_status gp_file_read(uint8_t **data, size_t *bytes, const char *path, size_t bytes_max, gp_error *err);

/* gp_file_write -- write a whole file: a draft (below) of one piece. */
gp_status gp_file_write(const char *path, const void *data, size_t bytes, gp_error *err);

/* A file that is written in pieces and appears under its name only when it is complete.  Until then it has no name, so
 * a process that is killed leaves nothing behind; file systems without O_TMPFILE get FILE.tmp-PID beside it.  A
 * symbolic link stays and its target is replaced.  Devices and pipes are written in place. */
typedef struct gp_file_draft {
    int fd; /* write here; -1: not open */
    bool in_place, named;
    char path[PATH_MAX]; /* symbolic links resolved */
} gp_file_draft;

/* GP_EIO.  GP_ENOENT: a symbolic link without a target.  GP_ELIMIT: the path is too long. */
gp_status gp_file_draft_open(gp_file_draft *out, const char *path, gp_error *err);
/* gp_file_draft_commit -- sync the file and rename it to its path.  The draft is closed, also after a failure.  GP_EIO. */
gp_status gp_file_draft_commit(gp_file_draft *draft, gp_error *err);
/* Remove a draft; accepts a closed one. */
void gp_file_draft_discard(gp_file_draft *draft);

/* gp_read_at -- bytes from the offset on; how many, fewer where the file ends.  -1: errno says why. */
ssize_t gp_read_at(int fd, void *to, size_t bytes, uint64_t offset);

/* gp_file_lock -- take the exclusive flock() of an open file; never waits.  GP_EBUSY: another process has it.
 * GP_OK without a lock where the file system has none (ENOSYS, ENOLCK, EOPNOTSUPP): Lustre without -o flock, some NFS.
 * GP_EIO: any other failure, errno says why. */
gp_status gp_file_lock(int fd);

/* gp_rename_new -- rename(), but false with EEXIST where `to` exists.  Where the file system cannot do that in one step (NFS),
 * by link() and unlink(). */
bool gp_rename_new(const char *from, const char *to);

/* gp_write_all -- to a descriptor that blocks.  false: errno says why, and some of it may be written. */
bool gp_write_all(int fd, const void *data, size_t bytes);

/* gp_directory_sync -- the names in it outlive a power cut.  false: errno says why. */
bool gp_directory_sync(const char *directory);

#endif
