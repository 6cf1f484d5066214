/* exit_reason.h -- the exit reason file, in which a process explains to the scheduler why it
 * exits. The file is next to the worker socket. The process that reaps the worker reads and
 * removes the file. */
#ifndef GP_EXIT_REASON_H
#define GP_EXIT_REASON_H

#include "common/base/error.h"

/* Set the exit reason file path, once per process. */
void gp_exit_reason_set_path(const char *path);

/* Exit with GP_EXIT_DEVICE_LOST after a permanent device failure: every later call in this
 * process would fail, so a new process must replace it.
 *   doing  "in step 12", "in a prediction"
 *   cause  device error; a long message is cut with "..." in the file and logged in full */
enum { GP_EXIT_DEVICE_LOST = 70 };
_Noreturn void gp_device_lost(const char *doing, const gp_error *cause);

/* Write the exit reason file. No effect without a path; errors are ignored. */
void gp_exit_reason_write(const char *text);

#endif
