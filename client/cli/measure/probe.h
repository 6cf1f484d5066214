/* Short training with timed steps, used by `gradpool advise` and `gradpool bench`.
 *
 * The probe runs a regular training on the pool's workers and stops it after some steps. The
 * learning rate is 0, so the weights do not change. */
#ifndef GP_CLI_PROBE_H
#define GP_CLI_PROBE_H

#include "client/cli/cli.h"

/* Training to measure, and limits on the measurement. */
typedef struct probe_request {
    const char *network, *data;
    const char *const
        /* training options as "name=value"; run length, learning rate and batch size are
         * replaced */
        *options;
    const char *extra;           /* additional option; NULL: none */
    gp_lease_request lease;      /* workers_min and workers_max are set by probe_run() */
    uint32_t workers, batch;     /* batch: total over all workers */
    uint32_t steps;              /* maximum timed steps */
    double seconds;              /* after this time, 10 timed steps are enough */
    const gp_progress *progress; /* progress while opening the data, and in the timed steps */
    const char *activity;        /* progress report label */
} probe_request;

/* Medians over the timed steps. Phase times are averaged over the workers. */
typedef struct probe_result {
    uint32_t workers, batch, steps;
    double step_s;                /* time from the end of one step to the end of the next */
    double compute_s, exchange_s; /* exchange: excludes waiting for the slowest worker */
    double wait_s, commit_s, data_s;
    uint64_t memory_bytes, parameters, samples;
} probe_result;

/* Run the probe. The caller must have called cli_catch_interrupts(). GP_ECANCELED: Ctrl-C.
 * GP_ESTATE: the training ended after too few steps. */
gp_status probe_run(probe_result *out, gp_pool *pool, const probe_request *request, gp_error *err);

#endif
