/* `gradpool data show` and `gradpool data split`. */
#ifndef GP_CLI_DATA_SHOW_H
#define GP_CLI_DATA_SHOW_H

#include "client/cli/cli.h"

/* Print all parts of a source: samples, shape, and samples per class. Return the exit code. */
int data_show(cli_call *call, const char *source);

/* Split the training part of a source into CSV files of path,label. Return the exit code.
 *   sizes    fractions or counts for all files but the last: "0.9", "0.8,0.1", "500"
 *   outputs  file names: "A.csv,B.csv"
 *   seed     of the random order */
int data_split(cli_call *call, const char *source, const char *sizes, const char *outputs, uint64_t seed);

#endif
