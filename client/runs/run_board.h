/* Curves of a training for TensorBoard.
 *
 *   loss/train, accuracy/train, rmse/train                     of the mini-batch
 *   loss/validation, accuracy/validation, rmse/validation
 *   learn_rate
 *   images_per_second                                          of all workers
 *   worker-N/PHASE_ms                                          mean time of a step's phase
 *   options (text), and a table of hyperparameters
 *
 * With RUN_BOARD_AUTO, steps are written at most twice per second and the phases less often, so the
 * file grows by about 1 KiB per second. */
#ifndef GP_RUNS_RUN_BOARD_H
#define GP_RUNS_RUN_BOARD_H

#include <gradpool/gradpool.h>

#include "common/model/train_options.h"

typedef enum run_board_mode { RUN_BOARD_AUTO, RUN_BOARD_NONE, RUN_BOARD_STEPS } run_board_mode;

typedef struct run_board run_board;

/* Create an event file in the folder.
 *   network, data  as given; part of the hyperparameters
 *   options        effective values
 *   first          first step, if the folder has files of earlier attempts; 0: it has none */
gp_status run_board_open(run_board **out, const char *folder, run_board_mode mode, const char *network,
                         const char *data, const gp_train_options *options, uint64_t first, gp_error *err);

/* Add a step of any rank.
 *   now_ms  clock of gp_now_ms() */
void run_board_step(run_board *board, const gp_train_step *step, int64_t now_ms);
void run_board_validation(run_board *board, const gp_train_validation_result *validation);

/* Write the end of the training and close the file. Return the number of events that could not be
 * written, and set *problem to the last errno. Accepts NULL: 0. */
uint64_t run_board_close(run_board *board, bool succeeded, int *problem);

#endif
