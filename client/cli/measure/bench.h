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

/* Parse a list of up to BENCH_COUNTS_MAX numbers such as "1,2,4" or "64K,1M", each from `least` to
 * `most`. Return the entry count; 0: malformed or empty. */
uint32_t bench_list(const char *text, uint64_t least, uint64_t most, uint64_t *numbers);

/* Parse --workers to an ascending list. Return the entry count; 0: malformed, after printing a
 * usage error. */
uint32_t bench_counts(cli_call *call, uint64_t *counts);

/* Copy the first `workers` names of --devices to `text` and return it; NULL: no names were
 * given. */
const char *bench_devices(const bench_options *options, uint32_t workers, char text[256]);

/* Run a benchmark and print the result. */
gp_status bench_scaling(cli_call *call, gp_error *err);
gp_status bench_allreduce(cli_call *call, gp_error *err);

#endif
