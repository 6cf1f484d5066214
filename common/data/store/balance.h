/* balance.h -- what each class should count in a loss, from how often the data have it.
 *
 * Roads are large and bicyclists are small: without weights a network does well by never saying "bicyclist". */
#ifndef GP_BALANCE_H
#define GP_BALANCE_H

#include "common/data/store/store.h"

typedef enum gp_balance {
    /* median of all frequencies / the class's own.  A class's frequency is its share of the images that it occurs in
     * (Eigen and Fergus, "Predicting depth, surface normals and semantic labels", 2015, section 4.3). */
    GP_BALANCE_MEDIAN,
    /* 1 / (classes * the class's share of all that has a class) */
    GP_BALANCE_INVERSE
} gp_balance;

/* The words of a command line in this order, NULL at the end. */
extern const char *const gp_balance_names[];

/* gp_balance_weights -- from counts as gp_store_count_within() makes them.
 *   counts, within  of class_count classes; within NULL: each class occurs in one and the same place, as where a sample
 *                   has one class
 *   weights         class_count, filled; a class that does not occur gets 1, and its name is of no matter to any loss */
void gp_balance_weights(gp_balance balance, const uint64_t *counts, const uint64_t *within,
                        uint32_t class_count, double *weights);

/* gp_balance_store -- the same of a store's own classes, all of whose targets are read.
 * GP_EINVAL: its targets are no classes. */
gp_status gp_balance_store(gp_balance balance, const gp_store *store, double *weights,
                           const gp_progress *progress, gp_error *err);

#endif
