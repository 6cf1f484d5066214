/* subset.h -- parts of a store: counted by class, and divided by share. */
#ifndef GP_SUBSET_H
#define GP_SUBSET_H

#include "common/data/store/store.h"

enum { GP_SPLIT_PARTS_MAX = 16 };

/* gp_store_count_classes -- how many samples (of stores with a class per sample) or elements (pixels) have each class.
 *   counts  class_count + 1; the last: no class
 * Reads the targets of all samples.  Images are not decoded for it, label images are. */
gp_status gp_store_count_classes(const gp_store *store, uint64_t *counts, const gp_progress *progress,
                                 gp_error *err);

/* gp_store_count_within -- the same, and where the classes are.
 *   within  class_count: the elements, with a class or without, of all samples in which the class occurs; may be NULL */
gp_status gp_store_count_within(const gp_store *store, uint64_t *counts, uint64_t *within,
                                const gp_progress *progress, gp_error *err);

/* gp_store_split -- divide the samples at random, each class by itself.
 *   sizes   of the first part_count - 1 parts: below 1 a share of each class, from 1 on so many of each class; the last
 *           part gets the rest
 *   parts   [count] of the store, filled: the part of each sample, from 0
 * The same seed divides in the same way.  A share is rounded; a class with two samples or more has at least one in each
 * part of a share, as long as they last.
 * GP_EINVAL: shares that add up to more than 1, a class with fewer samples than wanted, no class per sample. */
gp_status gp_store_split(const gp_store *store, const double *sizes, uint32_t part_count, uint64_t seed,
                         uint8_t *parts, gp_error *err);

#endif
