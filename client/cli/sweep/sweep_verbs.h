/* Verbs of `gradpool sweep` that send a request to the controller: add and retry. */
#ifndef GP_CLI_SWEEP_VERBS_H
#define GP_CLI_SWEEP_VERBS_H

#include "client/cli/cli.h"

/* Run `sweep add SWEEP NAME=VALUE...`: run a trial with these values.
 *   words  the words after "add"
 * Prints the number of the trial. GP_ESTATE: the sweep has ended. GP_EINVAL: a value outside the
 * space. */
gp_status sweep_verb_add(const cli_call *call, const char *const *words, int count, gp_error *err);

/* Run `sweep retry SWEEP TRIAL`: run a new trial with the values of one that ended without a
 * result. GP_EINVAL: the trial cannot be retried. GP_ESTATE: the sweep has ended. */
gp_status sweep_verb_retry(const cli_call *call, const char *const *words, gp_error *err);

#endif
