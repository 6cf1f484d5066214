/* Write an event file with known contents, for read_events.py.
 *
 *   write_events FOLDER SCALARS */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/runs/tensorboard.h"

int main(int argc, char **argv)
{
    static const char *const metrics[] = { "loss/train", "accuracy/validation" };
    static const tensorboard_hparam hparams[] = {
        { .name = "solver", .type = TENSORBOARD_TEXT, .text = "adam" },
        { .name = "initial-learn-rate", .type = TENSORBOARD_NUMBER, .number = 0.01 },
        { .name = "shuffle", .type = TENSORBOARD_BOOL, .number = 1 },
    };
    const int scalars = argc == 3 ? atoi(argv[2]) : 0;
    tensorboard *board;
    gp_error err;
    int problem;

    if (argc != 3 || tensorboard_open(&board, argv[1], &err) != GP_OK)
        return 2;
    tensorboard_text(board, "options", 0, 1000.5, "| option | value |\n|---|---|\n| solver | adam |");
    tensorboard_hparams(board, "lenet", 1000.5, hparams, 3, metrics, 2);
    for (int i = 1; i <= scalars; i++) {
        tensorboard_scalar(board, "loss/train", i, 1000.5 + i, 1.0 / i);
        tensorboard_scalar(board, "accuracy/validation", i, 1000.5 + i, i % 7 == 0 ? NAN : 0.25);
        tensorboard_scalar(board, "learn_rate", i * 100000000ll, 1000.5 + i, 0.5);
    }
    tensorboard_end_session(board, 2000.25, TENSORBOARD_SUCCEEDED);
    return tensorboard_close(board, &problem) == 0 ? 0 : 1;
}
