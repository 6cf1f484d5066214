/* runner_link.h -- a worker's side of its runner: the process and the two descriptors that tie it to us. */
#ifndef GP_RUNNER_LINK_H
#define GP_RUNNER_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct gp_runner_link gp_runner_link;

/* gp_runner_link_open -- start a runner: this executable with --run.  index: the worker's, for its log lines. */
gp_status gp_runner_link_open(gp_runner_link **out, uint32_t index, gp_error *err);

/* Readable when the runner has ended. */
int gp_runner_link_fd(const gp_runner_link *runner);

/* Whether the client's end of the socket has not been fetched yet. */
bool gp_runner_link_fresh(const gp_runner_link *runner);

/* The client's end of the socket, given away once: -1 afterwards. */
int gp_runner_link_take(gp_runner_link *runner);

/* Tell it to kill all that its commands started and to end. */
void gp_runner_link_end(gp_runner_link *runner);

/* Whether it has ended; reaps it.  One that was killed leaves orphans, which are ours then: they are killed here. */
bool gp_runner_link_gone(gp_runner_link *runner);

/* After gone, or at the end of the process (the runner then ends by itself); accepts NULL. */
void gp_runner_link_close(gp_runner_link *runner);

#endif
