/* bench.h -- between the verbs of `gradpool bench`. */
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

/* "1,2,4" into counts (BENCH_COUNTS_MAX), rising; how many, or 0 after cli_usage() said what is wrong. */
uint32_t bench_counts(cli_call *call, uint32_t *counts);

/* The first `workers` names of --devices into text; NULL where none are named. */
const char *bench_devices(const bench_options *options, uint32_t workers, char text[256]);

int bench_scaling(cli_call *call);
int bench_allreduce(cli_call *call);

#endif
