/* probe.h -- a short training whose steps are timed: what `advise` and `bench` measure with.
 *
 * It is a real training on the pool's workers, by the same code; only its weights stand still (rate 0), and it is stopped
 * after some steps. */
#ifndef GP_CLI_PROBE_H
#define GP_CLI_PROBE_H

#include "client/cli/cli.h"

typedef struct probe_request {
    const char *network, *data;
    const char *const
        *options;           /* of the training, "name=value"; what decides its length and batch is replaced */
    const char *extra;      /* one option more; or NULL */
    gp_lease_request lease; /* workers_min and workers_max are filled in here */
    uint32_t workers, batch;     /* batch: of all workers together */
    uint32_t steps;              /* that are timed, at most */
    double seconds;              /* then at least 10 are enough */
    const gp_progress *progress; /* of opening the data, and of the timed steps */
    const char *activity;        /* name of the measurement in the reports of its steps */
} probe_request;

/* Medians over the timed steps; times of the parts are means over the workers. */
typedef struct probe_result {
    uint32_t workers, batch, steps;
    double step_s;                /* from the end of a step to the end of the next */
    double compute_s, exchange_s; /* exchange: without waiting for the slowest */
    double wait_s, commit_s, data_s;
    uint64_t memory_bytes, parameters, samples;
} probe_result;

/* Ctrl-C ends it: GP_ECANCELED.  cli_catch_interrupts() was called. */
gp_status probe_run(probe_result *out, gp_pool *pool, const probe_request *request, gp_error *err);

/* The middle one; sorts them.  NaN of none. */
double probe_median(double *values, size_t count);

#endif
