/* lint.h -- options that can have no effect are refused, with the whole command line put right. */
#ifndef GP_CLI_LINT_H
#define GP_CLI_LINT_H

#include "client/cli/model/changes.h"
#include "client/cli/cli.h"

/* CLI_OK, or CLI_USAGE after telling what is wrong; `warn` tells and goes on. */
int lint_training(const cli_call *call, bool warn, bool has_validation);

/* The same once it is known what became of the pretrained network: an option that asked for nothing. */
int lint_transfer(const cli_call *call, bool warn, const cli_changes *changes);

#endif
