/* data_show.h -- `gradpool data show` and `data split`: what a source holds, and dividing it. */
#ifndef GP_CLI_DATA_SHOW_H
#define GP_CLI_DATA_SHOW_H

#include "client/cli/cli.h"

/* Both parts of a source: samples, shape, how many of each class.  Returns the exit code. */
int data_show(cli_call *call, const char *source);

/* Divide the training part of a source into CSV files of path,label.
 *   sizes  "0.9", "0.8,0.1", "500": of all files but the last;  outputs  "A.csv,B.csv" */
int data_split(cli_call *call, const char *source, const char *sizes, const char *outputs, uint64_t seed);

#endif
