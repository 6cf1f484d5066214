/* Pool secrets: variables such as AWS_SECRET_ACCESS_KEY, passed to a pool while it runs.
 *
 * The scheduler stores them in a memfd, and child processes inherit the descriptor. Secrets
 * therefore never appear in files, arguments, environments or messages. A writer replaces all
 * secrets at once; readers get the new values on the next read. */
#ifndef GP_SECRET_H
#define GP_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Limits: total bytes, secret count, name bytes including the NUL. */
enum { GP_SECRETS_BYTES_MAX = 32 << 10, GP_SECRETS_MAX = 32, GP_SECRET_NAME_BYTES_MAX = 128 };

/* Environment variable that passes the memfd's descriptor number to a scheduler's child process. */
#define GP_SECRETS_FD_VARIABLE "GRADPOOL_SECRETS_FD"

/* Create an empty set of secrets. *fd is close-on-exec; the caller closes it. */
gp_status gp_secrets_new(int *fd, gp_error *err);

enum { GP_SECRETS_NAMES_BYTES = 80 };

/* Write the default name list: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if set,
 * AWS_SESSION_TOKEN. "": the first or second variable is not set. */
const char *gp_secrets_names(char text[GP_SECRETS_NAMES_BYTES]);

/* Replace all secrets by variables from this process's environment.
 *   fd     secret set
 *   names  comma-separated variable names; empty names are ignored
 * GP_EINVAL: a name is invalid, or a variable is not set. The message contains names, never values.
 * GP_ELIMIT: too many secrets, or too many bytes. */
gp_status gp_secrets_set(int fd, const char *names, gp_error *err);

/* Replace the secrets in `to` by those in `from`. GP_EPROTO: `from` is not a set of secrets. */
gp_status gp_secrets_copy(int to, int from, gp_error *err);

/* Adopt the set of secrets whose descriptor is in GP_SECRETS_FD_VARIABLE. Removes the variable from
 * the environment and makes the descriptor close-on-exec. Without the variable, this process has no
 * secrets. Call once, before the first thread is started. */
void gp_secrets_adopt(void);

/* Like gp_secrets_adopt(), but create an empty set without the variable. For processes that can
 * receive secrets later. */
gp_status gp_secrets_keep(gp_error *err);

/* Return the adopted descriptor, for passing to child processes. It is 64 or above, so it does not
 * collide with file action descriptors. -1: none. */
int gp_secrets_fd(void);

enum { GP_SECRETS_ASSIGNMENT_BYTES = 32 };

/* Write "GRADPOOL_SECRETS_FD=N" for the environment in a child process that inherits the secrets as
 * descriptor N. Return text. */
const char *gp_secrets_assignment(char text[GP_SECRETS_ASSIGNMENT_BYTES], int fd);

/* Copy the environment of this process for a daemon, without secret variables.
 *   names  comma-separated names to omit, besides those that gp_secrets_hide() selects
 *   more   assignment to add; NULL: none
 * Free the array with gp_free(); the strings are borrowed. NULL: no memory. */
char **gp_secrets_environment(const char *names, char *more);

/* Copy the value of a secret. false: there is no such secret, or the value does not fit in `bytes`.
 * Erase the value with gp_secret_wipe() after use. */
bool gp_secrets_get(const char *name, char *value, size_t bytes);

/* Return a number that changes with each gp_secrets_set(). 0: this process has no secrets. */
uint64_t gp_secrets_version(void);

/* Return whether a variable (NAME or NAME=value) is an AWS credential, which must not be passed to
 * processes that do not need it. */
bool gp_secrets_hide(const char *variable);

/* Overwrite memory with zeros; the compiler cannot remove this write. */
void gp_secret_wipe(void *bytes, size_t count);

/* Protect a process that holds secrets: no core files, and no other process can read its memory. */
void gp_secret_guard(void);

/* Weaken gp_secret_guard() so that child processes can open this process's /proc/PID/fd. Core files
 * from this process and all children then omit all memory. No effect without gp_secret_guard(). */
void gp_secret_guard_files(void);

#endif
