/* `gradpool data show` and `gradpool data split`. */
#ifndef GP_CLI_DATA_SHOW_H
#define GP_CLI_DATA_SHOW_H

#include "client/cli/cli.h"

/* Print all parts of the source call->words[1]: samples, shape, and samples per class. */
gp_status data_show(cli_call *call, gp_error *err);

/* Split the training part of a source into CSV files of path,label.
 *   sizes    fractions or counts for all files but the last: "0.9", "0.8,0.1", "500"
 *   outputs  file names: "A.csv,B.csv"
 *   seed     of the random order */
gp_status data_split(cli_call *call, const char *source, const char *sizes, const char *outputs,
                     uint64_t seed, gp_error *err);

#endif
