/* Shared declarations for the `gradpool bench` subcommands. */
#ifndef GP_CLI_BENCH_H
#define GP_CLI_BENCH_H

#include "client/cli/cli.h"

enum { BENCH_COUNTS_MAX = 16 };

typedef struct bench_options {
    cli_common common;
    char network[512], data[512], validation_data[512], workers[64], plot[512], sizes[128], devices[256];
    bool fixed_batch;
    int64_t steps;
} bench_options;

/* Parse --workers, e.g. "1,2,4", to an ascending list. Return the number of entries; 0: malformed,
 * after printing a usage error.
 *   counts  BENCH_COUNTS_MAX entries */
uint32_t bench_counts(cli_call *call, uint32_t *counts);

/* Copy the first `workers` names of --devices to `text` and return it; NULL: no names were
 * given. */
const char *bench_devices(const bench_options *options, uint32_t workers, char text[256]);

/* Run a benchmark and print the result. */
gp_status bench_scaling(cli_call *call, gp_error *err);
gp_status bench_allreduce(cli_call *call, gp_error *err);

#endif
