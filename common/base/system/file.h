/* Read and write whole files. The functions repeat short reads and writes until all bytes are
 * transferred. */
#ifndef GP_FILE_H
#define GP_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/base/error.h"

/* Open a regular file for reading and return its size. Never blocks, not even on a FIFO.
 *   out        descriptor; the caller closes it
 *   bytes_max  largest accepted size
 * GP_ENOENT: no such file. GP_EIO: other errors, or no descriptor is free. GP_ENOMEM. GP_ELIMIT:
 * not a regular file, or larger than bytes_max. */
gp_status gp_file_open(int *out, size_t *bytes, const char *path, size_t bytes_max, gp_error *err);

/* Read a whole regular file. *data has a NUL after the contents; free it with gp_free(). Errors as
 * for gp_file_open(). */
gp_status gp_file_read(uint8_t **data, size_t *bytes, const char *path, size_t bytes_max, gp_error *err);

/* Write a whole file atomically, as a draft with a single write. */
gp_status gp_file_write(const char *path, const void *data, size_t bytes, gp_error *err);

/* Write a whole file atomically, but do not wait for the disk. For records of a process that the
 * next process can miss: after a power failure the path may be an empty file. */
gp_status gp_file_write_record(const char *path, const void *data, size_t bytes, gp_error *err);

/* A file under construction, which appears under its name only when it is complete. Until then it
 * has no name (O_TMPFILE), so a killed process leaves no file behind. On file systems without
 * O_TMPFILE the draft is FILE.tmp-PID in the same directory.
 *
 * If the path is a symbolic link, the link remains and its target is replaced. Devices and pipes
 * are written in place. */
typedef struct gp_file_draft {
    int fd;               /* descriptor to write to; -1: closed */
    bool in_place, named; /* device or pipe; has the name FILE.tmp-PID */
    /* set by the caller, at most one of them: see gp_file_draft_commit() */
    bool ordered, unsynced;
    char path[PATH_MAX]; /* final path with symbolic links resolved */
} gp_file_draft;

/* Create a draft for the file `path`. GP_EIO. GP_ENOENT: `path` is a symbolic link without a
 * target. GP_ELIMIT: the path is too long. */
gp_status gp_file_draft_open(gp_file_draft *out, const char *path, gp_error *err);

/* Create a draft and a stream that writes to it. The stream has its own descriptor: fclose()
 * reports write errors, and must be called before the draft is committed. Errors as for
 * gp_file_draft_open(). */
gp_status gp_file_draft_stream(FILE **stream, gp_file_draft *out, const char *path, gp_error *err);

/* Sync a draft and rename it to its final path. If draft->ordered is set, only write its contents
 * to the disk before the rename: after a power failure the path has the old contents or the new
 * ones, but without a commit of the journal. If draft->unsynced is set, only start that write:
 * after a power failure the path may also be an empty file. The draft is closed, even after an
 * error. GP_EIO.
 * GP_ESTALE: this process belongs to an outdated attempt of a cluster job (fence.h). */
gp_status gp_file_draft_commit(gp_file_draft *draft, gp_error *err);

/* Close and remove a draft. Accepts a closed one. */
void gp_file_draft_discard(gp_file_draft *draft);

/* Read up to `bytes` bytes at an offset; retry after signals. Return the byte count read, which is
 * smaller only at end of file. -1: error, see errno. */
ssize_t gp_read_at(int fd, void *to, size_t bytes, uint64_t offset);

/* Read the beginning and the end of a file, `bytes` bytes at most. The first quarter of `to`
 * receives the beginning, then follow a newline and the end. A file that fits is read as a whole.
 * Return the byte count. -1: error, see errno. */
ssize_t gp_read_ends(int fd, void *to, size_t bytes);

/* Take the exclusive flock() on an open file; never wait. GP_OK: locked, or the file system has no
 * locks (ENOSYS, ENOLCK, EOPNOTSUPP: Lustre mounted without -o flock, some NFS servers). GP_EBUSY:
 * another process holds the lock. GP_EIO: see errno. */
gp_status gp_file_lock(int fd);

/* Take the same lock. Wait up to timeout_ms for another process that holds the lock. Errors as for
 * gp_file_lock(). */
gp_status gp_file_lock_wait(int fd, int timeout_ms);

/* Rename a file, but never replace an existing one. On file systems without RENAME_NOREPLACE, such
 * as NFS, use link() and unlink(). false: see errno; EEXIST: `to` exists. */
bool gp_rename_new(const char *from, const char *to);

/* Write all bytes to a blocking descriptor. false: see errno; a part may have been written. */
bool gp_write_all(int fd, const void *data, size_t bytes);

/* Sync files and then their directory, so that their contents and names survive a power failure.
 * One commit of the journal serves all of them on file systems such as ext4.
 *   names  of the files in the directory, at most 8, NULL-terminated
 * false: see errno. */
bool gp_files_sync(const char *directory, const char *const *names);

/* Sync a directory, so that new and renamed entries survive a power failure. false: see errno. */
bool gp_directory_sync(const char *directory);

#endif
