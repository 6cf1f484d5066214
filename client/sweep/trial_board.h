/* TensorBoard file of a trial that ran a program. Trainings write their own (run_board.h).
 *
 * The folder of the sweep is a log directory of TensorBoard: each trial is a run, its values are
 * hyperparameters, and the objective is the metric. */
#ifndef GP_TRIAL_BOARD_H
#define GP_TRIAL_BOARD_H

#include "client/sweep/sweep_core.h"
#include "client/sweep/sweep_folder.h"

/* Write the values of an ended trial, the curves of its metrics.jsonl, and how it ended. Without a
 * curve of the objective, its value stands at the last epoch. A file that cannot be written is no
 * error: the journal has the values. */
void trial_board_write(const sweep_folder *folder, const sweep_plan *plan, uint32_t number,
                       const sweep_trial *trial);

#endif
