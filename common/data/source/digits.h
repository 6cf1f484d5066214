/* digits.h -- drawn digits, 28x28 grey: a data set for where there is no network and for tests.
 *
 * A digit is a few strokes, moved, turned, sheared, scaled and wobbled at random, drawn with a pen of random
 * width and softness, with noise.  A sample is a pure function of (seed, index), the same on every machine. */
#ifndef GP_DIGITS_H
#define GP_DIGITS_H

#include <stdint.h>

#include "common/base/error.h"
#include "common/base/progress.h"

enum { GP_DIGITS_SIDE = 28, GP_DIGITS_PIXELS = 784, GP_DIGITS_COUNT_MAX = 10000000, GP_DIGITS_SEED = 1 };

/* Version of the drawing. Increase it when a digit comes out differently: drawn sets are cached on disk. */
enum { GP_DIGITS_VERSION = 1 };

/* Test sets are drawn from this index on, so they never meet a training set of the same seed. */
#define GP_DIGITS_TEST_FIRST 0x80000000u

/* gp_digits_draw -- draw one; returns its label, index modulo 10.  0 is the background, 255 full ink. */
int gp_digits_draw(uint8_t pixel[GP_DIGITS_PIXELS], uint64_t seed, uint32_t index);

/* gp_digits_write -- make the data set `directory`: train-* and t10k-* as gzipped IDX files.
 *   directory  must not be there, or be empty; the one above it must be there
 *   progress   NULL: no reports
 * All of it appears at once by a rename, or nothing does.  GP_EINVAL: a count that is not 1 to GP_DIGITS_COUNT_MAX.
 * GP_ESTATE: the directory is not empty. */
gp_status gp_digits_write(const char *directory, uint32_t train_count, uint32_t test_count, uint64_t seed,
                          const gp_progress *progress, gp_error *err);

#endif
