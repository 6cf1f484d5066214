/* Counters of this worker process, sent in heartbeats (worker_counters.def). */
#ifndef GP_COUNTERS_H
#define GP_COUNTERS_H

#include "proto/message/messages.h"

/* Work that the control thread has seen. */
typedef struct counters {
    uint64_t samples, steps;
    double data_ms, forward_ms, backward_ms, exchange_ms, commit_ms, wait_ms;
} counters;

/* Add training steps that are sent to the client. */
void counters_add_steps(counters *counters, const gp_train_steps *steps);

/* Add predicted samples that are sent to the client. */
void counters_add_samples(counters *counters, uint32_t samples);

/* Fill in the counters of a heartbeat, with processor time and memory of the process.
 *   calls  calls of tasks that ended */
void counters_get(const counters *counters, uint64_t calls, gp_beat *out);

#endif
