/* disk_log.h -- what a process did to the files of one folder, call by call, and what a disk may have of it when power fails.
 *
 * Calls of the whole process (open, write, fsync, unlink, ...), libraries' too, come before the C library's and are recorded while
 * a folder is watched.  The model of the disk is POSIX's, which promises little: what was written to a file since its
 * last fsync may be there or not, each write by itself, and torn between sectors; what was done to names since the
 * folder's last fsync likewise.  Nothing that an fsync covered is missing. */
#ifndef GP_TEST_DISK_LOG_H
#define GP_TEST_DISK_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_SECTOR = 512, DISK_EVENTS_MAX = 16384, DISK_PENDING_MAX = 4096 };

/* From now on, all that happens to files of that folder, which is empty; NULL: no more. */
void disk_log_watch(const char *folder);
/* 8 bytes written to that descriptor are a mark: something was told to somebody. */
void disk_log_marks(int fd);
uint32_t disk_log_count(void);     /* events so far */
uint32_t disk_log_last_mark(void); /* index of the last mark + 1; 0 = none */
bool disk_log_is_sync(uint32_t event);
bool disk_log_is_mark(uint32_t event);
void disk_log_free(void);

/* What is on the disk, and what is on its way, after the first `count` events; successive counts must not decrease but for 0. */
void disk_log_go(uint32_t count);
uint32_t disk_log_pending(void);
/* Whether the i-th that is on its way is a write, and of how many sectors. */
uint32_t disk_log_sectors(uint32_t i);

/* One disk after a loss of power: of what is on its way, kept[i] of it arrived; 1 = whole, 0 = not; the write `torn` (UINT32_MAX: none)
 * has only the sectors whose bits are set.  Returns a sum of all names and contents, by which equal disks are known. */
typedef struct disk_image {
    uint8_t kept[DISK_PENDING_MAX];
    uint32_t torn;
    uint64_t sectors;
} disk_image;
uint64_t disk_log_image(const disk_image *image);
/* Writes the image that was made last into that folder, over what is there. */
void disk_log_put(const char *folder);

#endif
