/* engine.h: a trainer, a predictor and a backend that compute nothing, to test the daemon around
 * them.
 *
 * The options JSON of a training selects the behavior (matched as plain substrings):
 *   "steps":N      N steps of 1 ms with one record each; a validation every 10 steps
 *   "flood"        steps take no time
 *   "refuse"       gp_trainer_new() fails
 *   "deaf"         run() ignores every stop request and never returns
 *   "meet"         new() publishes a memfd with the text "worker I" and fetches those of all ranks
 * The weights are 4 floats: 1, 2, 3 and the number of steps. */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include "worker/backend/backend.h"

extern const gp_backend_ops fake_backend;

#endif
