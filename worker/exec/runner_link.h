/* The worker's side of a runner: the process and the two descriptors that connect it with the
 * worker. */
#ifndef GP_RUNNER_LINK_H
#define GP_RUNNER_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

/* Opaque; see runner_link.c. */
typedef struct gp_runner_link gp_runner_link;

/* Start a runner: this executable with --run. `index`: worker number, used in log lines. */
gp_status gp_runner_link_open(gp_runner_link **out, uint32_t index, gp_error *err);

/* Return a descriptor that becomes readable when the runner exits. */
int gp_runner_link_fd(const gp_runner_link *runner);

/* Return true if gp_runner_link_take() has not been called yet. */
bool gp_runner_link_fresh(const gp_runner_link *runner);

/* Return the client's end of the socket and transfer ownership to the caller. -1: already taken. */
int gp_runner_link_take(gp_runner_link *runner);

/* Make the runner kill all descendants and exit. */
void gp_runner_link_end(gp_runner_link *runner);

/* Return true if the runner exited, and reap it. If it was killed, the runner's orphaned
 * descendants became children of this process; they are killed here. */
bool gp_runner_link_gone(gp_runner_link *runner);

/* Release the link after gp_runner_link_gone() returned true, or before this process exits; the
 * runner then exits by itself. Accepts NULL. */
void gp_runner_link_close(gp_runner_link *runner);

#endif
