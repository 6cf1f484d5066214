/* Counters of this worker process, sent in heartbeats (worker_counters.def). */
#ifndef GP_COUNTERS_H
#define GP_COUNTERS_H

#include "proto/message/messages.h"
#include "worker/train/trainer.h"

/* Work that the control thread has seen. */
typedef struct counters {
    uint64_t samples, steps;
    double data_ms, forward_ms, backward_ms, exchange_ms, commit_ms, wait_ms;
    int64_t held_ms, lease_ms; /* time in leases that ended; start of the current lease, 0: none */
    int64_t usage_ms;          /* last measurement of counters_get_usage(); 0: none */
    uint64_t failures;         /* earlier processes of this worker index that failed */
} counters;

/* Add training steps that are sent to the client. */
void counters_add_steps(counters *counters, const gp_train_steps *steps);

/* Add predicted samples that are sent to the client. */
void counters_add_samples(counters *counters, uint32_t samples);

/* Start or end the time in a lease. A call without a change does nothing.
 *   now_ms  clock of gp_now_ms() */
void counters_lease(counters *counters, bool held, int64_t now_ms);

/* Measure processor time and memory of the process, at most ten times a second. Otherwise set
 * both to 0.
 *   now_ms  clock of gp_now_ms() */
void counters_get_usage(counters *counters, int64_t now_ms, gp_train_steps *out);

/* Fill in the counters of a heartbeat, with processor time and memory of the process.
 *   train   calls of tasks, and memory of the device
 *   now_ms  clock of gp_now_ms() */
void counters_get(const counters *counters, const gp_train_control *train, int64_t now_ms, gp_beat *out);

#endif
