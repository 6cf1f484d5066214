/* Command line of `gradpool sweep`: options, parameters and the command of the trials. */
#ifndef GP_CLI_SWEEP_WORDS_H
#define GP_CLI_SWEEP_WORDS_H

#include "client/cli/cli.h"
#include "client/sweep/sweep_run.h"

typedef struct sweep_options {
    cli_common common;
    char folder[1024], resume[1024], space[1024];
    char csv[1024], optuna[1024], plot[1024], sort[128]; /* of `show` */
    char method[16], objective[64], stop[24], time_limit[24], until[32], workers[24], keep[8];
    bool minimize, maximize, retry_failed;
    int64_t trials, max_concurrent, min_epochs, priority, max_failures, seed, confirm;
} sweep_options;

extern const gp_param sweep_params[];

/* Check the words of a new sweep, and the command of the first trial. CLI_OK: they are valid;
 * otherwise the exit code, after printing the error. */
int sweep_words_check(const cli_call *call);

/* Fill in a plan from checked words. `plan` is initialized. */
gp_status sweep_words_plan(const cli_call *call, sweep_plan *plan, gp_error *err);

/* Apply the command line of --resume to the plan of the sweep: the options that may change, such as
 * --trials. GP_EINVAL: another option, the space or the command differs; err has both values. */
gp_status sweep_words_resume(const cli_call *call, sweep_plan *plan, gp_error *err);

/* Fill in the options of a run. */
gp_status sweep_words_run(const cli_call *call, sweep_run_options *run, gp_error *err);

/* Return the network of the command, for the name of the folder. */
const char *sweep_words_network(const cli_call *call);

#endif
