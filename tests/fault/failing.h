/* failing.h: make system calls fail on demand, selected by call number and path.
 *
 * failing.c is linked into a test, where its functions precede the C library's, also for the
 * libraries that the test uses. It is also a preload library for commands and daemons:
 *
 *     GP_FAIL="write:3:ENOSPC:metrics.jsonl" GP_FAIL_TOLD=FILE LD_PRELOAD=failing.so gradpool ...
 *
 * CALL:N[+]:ERROR:PART: the N-th CALL (with +: and all later ones) on a path that contains PART
 * fails with ERROR. With ERROR "short", a write consumes only one byte. Each failure appends "CALL
 * PATH" to FILE. */
#ifndef GP_TEST_FAILING_H
#define GP_TEST_FAILING_H

#include <stdbool.h>

/* Names of the supported calls: open, write, fsync, rename, fallocate, link, mkdir, mmap, socket,
 * flock; NULL-terminated. */
extern const char *const failing_calls[];

/* Set the failure as in GP_FAIL; NULL: none. Not thread-safe. */
void failing_set(const char *spec);

/* Return the number of failures since failing_set(). */
int failing_struck(void);

#endif
