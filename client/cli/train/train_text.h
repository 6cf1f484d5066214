/* train_text.h -- the lines that `gradpool train` prints before the first step and after the last one. */
#ifndef GP_CLI_TRAIN_TEXT_H
#define GP_CLI_TRAIN_TEXT_H

#include "client/cli/cli.h"
#include "common/model/train_options.h"

/* Fill in the options that the training uses: as given, and what the workers and the solver made of the rest. */
void train_text_options(const cli_call *call, const gp_train_info *facts, gp_train_options *options);

/* Print the options that were given (all_options: every option), the sizes of the training, and its run folder. */
void train_text_begin(const cli_call *call, const gp_train_info *facts, bool all_options, const char *folder);

/* Print how the training ended. The line has no end: the caller may append to it. */
void train_text_end(const gp_training_summary *summary);

#endif
