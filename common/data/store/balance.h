/* Class weights for a loss, computed from the class frequencies in the data.
 *
 * Rare classes need larger weights. In street scenes, a network without weights reaches a low loss
 * without ever predicting "bicyclist". */
#ifndef GP_BALANCE_H
#define GP_BALANCE_H

#include "common/data/store/store.h"

/* Weighting rule. */
typedef enum gp_balance {
    /* Median class frequency, divided by the class's frequency. A class's frequency is its pixel
     * count, divided by the pixel count of all images with that class (Eigen and Fergus,
     * "Predicting depth, surface normals and semantic labels", 2015, section 4.3). */
    GP_BALANCE_MEDIAN,
    /* 1 / (classes * the class's fraction among labelled elements) */
    GP_BALANCE_INVERSE
} gp_balance;

/* Option values in gp_balance order; NULL at the end. */
extern const char *const gp_balance_names[];

/* Compute class weights from the counts of gp_store_count_within().
 *   counts, within  [class_count]; within NULL: each sample has a single class
 *   weights         [class_count]: filled in; 1 for a class that does not occur */
void gp_balance_weights(gp_balance balance, const uint64_t *counts, const uint64_t *within,
                        uint32_t class_count, double *weights);

/* Compute class weights for a store. Reads all targets. GP_EINVAL: the targets are not classes. */
gp_status gp_balance_store(gp_balance balance, const gp_store *store, double *weights,
                           const gp_progress *progress, gp_error *err);

#endif
