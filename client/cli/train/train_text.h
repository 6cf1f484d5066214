/* Text that `gradpool train` prints before the first and after the last step. */
#ifndef GP_CLI_TRAIN_TEXT_H
#define GP_CLI_TRAIN_TEXT_H

#include "client/cli/cli.h"
#include "common/model/train_options.h"

/* Get the option values that the training uses: as given, with defaults resolved, and with batch
 * size and learning rate as adapted to the workers. */
void train_text_options(const cli_call *call, const gp_train_info *info, gp_train_options *options);

/* Print the precision of GPUs, the options, the training sizes, and the run folder.
 *   gpu_workers  workers of the group that compute on a GPU
 *   all_options  print all options instead of only those given */
void train_text_begin(const cli_call *call, const gp_train_info *info, uint32_t gpu_workers, bool all_options,
                      const char *folder);

/* Print the training result without a newline, so that the caller can append to the line. */
void train_text_end(const gp_training_summary *summary);

#endif
