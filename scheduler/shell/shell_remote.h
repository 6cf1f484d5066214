/* Clients on other hosts, inside the shell. */
#ifndef GP_SHELL_REMOTE_H
#define GP_SHELL_REMOTE_H

#include "scheduler/shell/shell_parts.h"

/* Process pending messages from remote clients, and drop clients that may not stay. Call this in
 * each iteration of the loop. */
void shell_remote_serve(shell *s);

/* Build a job's environment: the given NAME=value strings, plus the variables of this host that
 * every program expects. Each string ends with NUL. */
gp_status shell_remote_environment(const gp_frame *given, gp_buffer *out, gp_error *err);

/* Return the working directory for jobs whose client named none. */
const char *shell_remote_home(void);

#endif
