/* workers.jsonl: sums of each worker of a training, one line for each second and at the end of each
 * epoch.
 *
 *     {"worker": 2, "seconds": 12.04, "first_step": 1801, "step": 1980, "steps": 180,
 *      "samples": 11520, "time": {"data": 3.1, "forward": 210.7, "backward": 402.2, ...},
 *      "memory_bytes": 18931712, "cpu_ms": 752}
 *
 * A line has the sums over the steps first_step to step, so the sums over all lines are exact.
 * Lines end with epochs, because most trainings resume there.
 * `seconds` is the time of the last step, as in metrics.jsonl; `time` is in milliseconds.
 * `memory_bytes` is the resident memory of the worker process, and `cpu_ms` the processor time of
 * all its threads since the previous line. Workers measure both ten times a second, so they may be
 * values of up to 0.1 s before the end of the interval.
 *
 * The open interval of each worker is also in the binary file workers.open, which is written at
 * each step. If the process is killed, the next attempt appends it to workers.jsonl. */
#ifndef GP_RUNS_WORKER_LINES_H
#define GP_RUNS_WORKER_LINES_H

#include <stdbool.h>

#include <gradpool/gradpool.h>

typedef struct worker_lines worker_lines;

/* Open the file in the folder, and append the intervals that a killed process left. */
gp_status worker_lines_open(worker_lines **out, const char *folder, gp_error *err);

/* Remove lines after `step`, because the training repeats the following steps. The samples and
 * times of an interval that contains `step` are reduced in proportion to its steps. After an error,
 * the lines stay, or following lines are lost. */
gp_status worker_lines_resume(worker_lines *lines, uint64_t step, gp_error *err);

/* Add a step of one worker.
 *   now_ms  clock of gp_now_ms() */
void worker_lines_add(worker_lines *lines, const gp_train_step *step, int64_t now_ms);

/* Set memory and processor time of a worker process for the lines that follow.
 *   cpu_ms_total  since the start of the process
 *   memory_bytes  0: not measured; the call does nothing */
void worker_lines_usage(worker_lines *lines, uint32_t worker, uint64_t cpu_ms_total, uint64_t memory_bytes);

/* Describe the slowest worker since the file was opened, such as "worker 2 was the slowest: 31.2 ms
 * per step, others 25.0 ms; the difference is largest in backward". Waiting for other workers does
 * not count. false: fewer than two workers did 20 steps, or the difference is below 10 %. */
bool worker_lines_slowest(const worker_lines *lines, char *text, size_t bytes);

/* Write the open intervals and close the file. Return the number of lines that could not be
 * written, and set *problem to the last errno. Accepts NULL: 0. */
uint64_t worker_lines_close(worker_lines *lines, int *problem);

#endif
