/* secret.h -- what is told to a pool for its life and shown to nobody: variables such as AWS_SECRET_ACCESS_KEY.
 *
 * They lie in one piece of memory without a name (a memfd) that the scheduler makes and its children inherit: in no file, no
 * argument, no environment and no message.  A writer replaces them all at once; readers see the new ones at their next look. */
#ifndef GP_SECRET_H
#define GP_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_SECRETS_BYTES_MAX = 32 << 10, GP_SECRETS_MAX = 32, GP_SECRET_NAME_BYTES_MAX = 128 };

/* The variable by which a child of the scheduler is told the descriptor that it inherits. */
#define GP_SECRETS_FD_VARIABLE "GRADPOOL_SECRETS_FD"

/* gp_secrets_new -- an empty one; *fd is close-on-exec and the caller's. */
gp_status gp_secrets_new(int *fd, gp_error *err);

/* gp_secrets_names -- by default: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, as far as they are set, if the
 * first two are; else "". */
enum { GP_SECRETS_NAMES_BYTES = 80 };
const char *gp_secrets_names(char text[GP_SECRETS_NAMES_BYTES]);

/* gp_secrets_set -- replace what is in it by `names` of the environment, separated by commas; empty variables are none.
 * GP_EINVAL: a name that is none, or a variable that is not set; the message has names, never values.  GP_ELIMIT. */
gp_status gp_secrets_set(int fd, const char *names, gp_error *err);

/* gp_secrets_copy -- replace what is in one by what is in another.  GP_EPROTO: `from` is none. */
gp_status gp_secrets_copy(int to, int from, gp_error *err);

/* gp_secrets_adopt -- this process's secrets from now on are those that GP_SECRETS_FD_VARIABLE names; the variable is
 * removed, the descriptor becomes close-on-exec.  Without the variable there are none.  Once, before there are threads. */
void gp_secrets_adopt(void);

/* gp_secrets_keep -- the same, and empty ones where there are none: for who may be told of them later. */
gp_status gp_secrets_keep(gp_error *err);

/* The descriptor adopted, for children: above 64, so that it is in nobody's way; -1: none. */
int gp_secrets_fd(void);

/* "GRADPOOL_SECRETS_FD=N" for a child that has it as N. */
enum { GP_SECRETS_ASSIGNMENT_BYTES = 32 };
const char *gp_secrets_assignment(char text[GP_SECRETS_ASSIGNMENT_BYTES], int fd);

/* gp_secrets_environment -- our environment for a daemon: without what gp_secrets_hide() hides and without `names`, and
 * with `more`, if not NULL.  The array is the caller's to gp_free(); texts are borrowed.  NULL: no memory. */
char **gp_secrets_environment(const char *names, char *more);

/* gp_secrets_get -- a variable's value; false: there is none.  Wipe it with gp_secret_wipe(). */
bool gp_secrets_get(const char *name, char *value, size_t bytes);

/* Changes with each set; 0: there are none. */
uint64_t gp_secrets_version(void);

/* gp_secrets_hide -- whether a variable is not for processes that have no use for it: those by which AWS's tools are given
 * secrets. */
bool gp_secrets_hide(const char *variable);

void gp_secret_wipe(void *bytes, size_t count);

/* gp_secret_guard -- this process holds secrets: from now on it leaves no core file and no other process may look at its
 * memory. */
void gp_secret_guard(void);

/* gp_secret_guard_files -- the same, if it was asked for, in a way that lets programs that this process starts open its
 * /proc/PID/fd: a core file of it, and of them, is without memory. */
void gp_secret_guard_files(void);

#endif
