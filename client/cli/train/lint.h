/* Reject training options that have no effect, and print a corrected command line. */
#ifndef GP_CLI_LINT_H
#define GP_CLI_LINT_H

#include "client/cli/model/changes.h"
#include "client/cli/cli.h"

/* Check the options. CLI_USAGE: an option has no effect; the error was printed.
 *   warn            print the error but return CLI_OK
 *   has_validation  the training has validation data */
int lint_training(const cli_call *call, bool warn, bool has_validation);

/* Check options of --pretrained after the network was adapted: report options that changed nothing.
 * Parameters and result as for lint_training(). */
int lint_transfer(const cli_call *call, bool warn, const cli_changes *changes);

#endif
