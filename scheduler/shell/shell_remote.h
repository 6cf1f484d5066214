/* shell_remote.h -- inside the shell: clients on other hosts. */
#ifndef GP_SHELL_REMOTE_H
#define GP_SHELL_REMOTE_H

#include "scheduler/shell/shell_parts.h"

/* Listen, if it was asked for.  Fails for a pool that begins; one that goes on after a scheduler's death tries again. */
gp_status shell_remote_open(shell *s, gp_error *err);
void shell_remote_close(shell *s, int drain_ms);

/* What waits there, and who may not stay; in each turn of the loop. */
void shell_remote_serve(shell *s);
/* Within which it wants another turn; -1: nothing listens. */
int shell_remote_patience_ms(shell *s);

shell_remote_counts shell_remote_count(shell *s);

/* A job's variables, NAME=value with a NUL each: those given, and of this host's what every program expects. */
gp_status shell_remote_environment(const gp_frame *given, gp_buffer *out, gp_error *err);
/* Where a job begins whose client named no directory. */
const char *shell_remote_home(void);

#endif
