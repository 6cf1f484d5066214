/* Drawn digits, 28x28 grey: a data set for tests and for machines without a network.
 *
 * A digit is a stroke through a few points. It is moved, rotated, sheared, scaled and distorted at
 * random, then drawn with a random pen width and softness, with noise. A sample depends only on
 * (seed, index), and is the same on every machine. */
#ifndef GP_DIGITS_H
#define GP_DIGITS_H

#include <stdint.h>

#include "common/base/error.h"
#include "common/base/progress.h"

enum { GP_DIGITS_SIDE = 28, GP_DIGITS_PIXELS = 784, GP_DIGITS_COUNT_MAX = 10000000, GP_DIGITS_SEED = 1 };

/* Version of the drawing. Increment it whenever the result changes, because drawn sets are cached
 * on disk. */
enum { GP_DIGITS_VERSION = 1 };

/* First index of test sets; training sets with the same seed never reach it. */
#define GP_DIGITS_TEST_FIRST 0x80000000u

/* Draw one digit and return its label, index modulo 10. Pixel values: 0 background, 255 full
 * ink. */
int gp_digits_draw(uint8_t pixel[GP_DIGITS_PIXELS], uint64_t seed, uint32_t index);

/* Files of a data set on disk. */
typedef enum gp_digits_format {
    GP_DIGITS_IDX, /* train-* and t10k-*, gzipped IDX files */
    GP_DIGITS_PNG, /* train/CLASS/NUMBER.png and test/CLASS/NUMBER.png, RGB images */
} gp_digits_format;

/* Create a data set.
 *   directory  must be empty or not exist, in an existing parent
 *   progress   NULL: no reports
 * The directory appears complete, by a rename, or not at all.
 *
 * GP_EINVAL: a count outside 1 to GP_DIGITS_COUNT_MAX. GP_ESTATE: the directory is not empty. */
gp_status gp_digits_write(const char *directory, gp_digits_format format, uint32_t train_count,
                          uint32_t test_count, uint64_t seed, const gp_progress *progress, gp_error *err);

#endif
