/* Objective of a trial: read from the files in its run folder.
 *
 * A training writes its validations to metrics.jsonl and its final values to end.json. A program
 * appends lines such as {"step": 7, "f1": 0.8} to metrics.jsonl (GRADPOOL_METRICS); the last line
 * with the objective counts. If a program appends no line, its objective is the last number that it
 * printed, which `gradpool spmd --folder` writes to end.json. */
#ifndef GP_SWEEP_TRIAL_RESULT_H
#define GP_SWEEP_TRIAL_RESULT_H

#include <gradpool/gradpool.h>

#include "client/runs/run_reader.h"
#include "client/sweep/sweep_folder.h"

/* Reader of the values of one attempt. Initialize the struct with zeros. */
typedef struct trial_reader {
    run_lines *lines;           /* NULL: not opened yet */
    bool found, any;            /* a line has the objective; there is a line */
    double value;               /* the last objective, if found */
    uint32_t epoch;             /* last epoch with an objective; 0: none */
    char names[SWEEP_TEXT_MAX]; /* numbers in the last line without the objective: "loss, f1" */
} trial_reader;

/* Get the next value since the last call.
 *   epoch  epoch of a training; member "epoch" or "step" of a program's line; 0: none
 * false: no further value yet. */
bool trial_reader_next(trial_reader *reader, const sweep_folder *folder, const sweep_plan *plan,
                       uint32_t trial, uint32_t *epoch, double *value);
void trial_reader_deinit(trial_reader *reader);

/* Determine how the job of a trial ended, after the last value was read: set the outcome, the
 * epoch, the value and the text of an event. The epoch stays if no line has one. `text` is the
 * memory for the text. The last line of a program may lack its newline.
 *   info  state of the job; NULL: the pool has forgotten it
 * GP_EIO, GP_ENOMEM: the result or the values exist but cannot be read; retry later. */
gp_status trial_result_read(sweep_event *event, char text[SWEEP_TEXT_MAX], trial_reader *reader,
                            const sweep_folder *folder, const sweep_plan *plan, const gp_job_info *info,
                            gp_error *err);

#endif
