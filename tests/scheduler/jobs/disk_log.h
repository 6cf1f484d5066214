/* Record the file operations of a process in one folder, and construct the disk states that a power
 * failure may leave.
 *
 * While a folder is watched, interposed C library calls (open, write, fsync, unlink and so on)
 * record all operations of the process, including those of libraries. The disk model follows POSIX,
 * which guarantees little. Each write since the last fsync of a file may be missing, or torn
 * between sectors. Each directory change since the last fsync of the folder may be missing. Nothing
 * covered by an fsync is missing. */
#ifndef GP_TEST_DISK_LOG_H
#define GP_TEST_DISK_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_SECTOR = 512, DISK_EVENTS_MAX = 16384, DISK_PENDING_MAX = 4096 };

/* Start to record all operations on files in a folder, which must be empty. NULL: stop. */
void disk_log_watch(const char *folder);

/* Treat 8-byte writes to a descriptor as marks: a client was notified. */
void disk_log_marks(int fd);
uint32_t disk_log_count(void);     /* number of events so far */
uint32_t disk_log_last_mark(void); /* index of the last mark + 1; 0: none */
bool disk_log_is_sync(uint32_t event);
bool disk_log_is_mark(uint32_t event);
void disk_log_free(void);

/* Compute the durable and pending operations after the first `count` events. Counts must increase
 * from call to call, except for a restart at 0. */
void disk_log_go(uint32_t count);
uint32_t disk_log_pending(void);

/* Return the number of sectors of pending operation i. 0: not a write. */
uint32_t disk_log_sectors(uint32_t i);

/* Disk state after a power failure. kept[i]: 1 if pending operation i is on the disk. Of the
 * write `torn` (UINT32_MAX: none), only the sectors in the mask are on the disk. disk_log_image()
 * returns a hash of all names and contents, to recognize equal disks. */
typedef struct disk_image {
    uint8_t kept[DISK_PENDING_MAX];
    uint32_t torn;
    uint64_t sectors;
} disk_image;
uint64_t disk_log_image(const disk_image *image);

/* Write the last constructed disk state to a folder, replacing existing files. */
void disk_log_put(const char *folder);

#endif
