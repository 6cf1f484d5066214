/* shell_remote.h -- inside the shell: clients on other hosts. */
#ifndef GP_SHELL_REMOTE_H
#define GP_SHELL_REMOTE_H

#include "scheduler/shell/shell_parts.h"

/* What waits there, and who may not stay; in each turn of the loop. */
void shell_remote_serve(shell *s);

/* A job's variables, NAME=value with a NUL each: those given, and of this host's what every program expects. */
gp_status shell_remote_environment(const gp_frame *given, gp_buffer *out, gp_error *err);
/* Where a job begins whose client named no directory. */
const char *shell_remote_home(void);

#endif
