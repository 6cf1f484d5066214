/* engine.h -- a trainer, a predictor and a backend that compute nothing: the daemon around them is what is tested.
 *
 * The options JSON of a training says what it does (plain words in the text, looked for one by one):
 *   "steps":N      so many steps of 1 ms, a record each; a validation every 10
 *   "flood"        the steps take no time
 *   "refuse"       gp_trainer_new() fails
 *   "deaf"         run() ignores every stop, for ever
 *   "meet"         new() publishes a memfd that says "worker I" and fetches that of every other rank
 * Weights are 4 floats: 1, 2, 3 and the number of steps. */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include "worker/backend/backend.h"

extern const gp_backend_ops fake_backend;

#endif
