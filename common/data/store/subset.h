/* Count a store's samples by class, and split them into parts. */
#ifndef GP_SUBSET_H
#define GP_SUBSET_H

#include "common/data/store/store.h"

enum { GP_SPLIT_PARTS_MAX = 16 };

/* Count the samples per class, or the elements (pixels) if each pixel has a class, and the
 * extent per class. Reads all targets. This decodes label images, but not the images. counts
 * [class_count + 1]; the last entry counts samples without a class within  [class_count]: total
 * elements, labelled or not, in all samples that contain the
 *           class; may be NULL */
gp_status gp_store_count_within(const gp_store *store, uint64_t *counts, uint64_t *within,
                                const gp_progress *progress, gp_error *err);

/* Split the samples at random into parts, class by class. The same seed gives the same split.
 *   sizes   [part_count - 1]: below 1: fraction per class; from 1 on: samples per class; the last
 *           part gets the rest
 *   parts   [store's sample count]: set to each sample's part, from 0
 * Fractions are rounded. As long as samples remain, a class with two or more samples gets at least
 * one into each part given by a fraction.
 *
 * GP_EINVAL: the fractions add up to more than 1, a class has too few samples, or the store has no
 * class per sample. */
gp_status gp_store_split(const gp_store *store, const double *sizes, uint32_t part_count, uint64_t seed,
                         uint8_t *parts, gp_error *err);

#endif
