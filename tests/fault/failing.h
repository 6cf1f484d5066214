/* failing.h -- system calls that fail on demand, by number and by path.
 *
 * failing.c is linked into a test (its functions come before the C library's, for the libraries that the test uses too),
 * and is a preload library for commands and daemons:
 *
 *     GP_FAIL="write:3:ENOSPC:metrics.jsonl" GP_FAIL_TOLD=FILE LD_PRELOAD=failing.so gradpool train ...
 *
 * CALL:N[+]:ERROR:PART   the N-th CALL (with + all from then on) on a path that contains PART fails with ERROR; ERROR
 * "short" makes a write take one byte only.  FILE gets "CALL PATH" when it does. */
#ifndef GP_TEST_FAILING_H
#define GP_TEST_FAILING_H

#include <stdbool.h>

/* The names of the calls: open, write, fsync, rename, fallocate, link, mkdir, mmap, socket, flock; NULL ends. */
extern const char *const failing_calls[];

/* As GP_FAIL says; NULL: none fails.  Not while other threads run. */
void failing_set(const char *spec);

/* How often it struck since failing_set(). */
int failing_struck(void);

#endif
