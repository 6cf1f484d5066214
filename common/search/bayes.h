/* Bayesian optimization: a model of the history, which proposes the next point. */
#ifndef GP_BAYES_H
#define GP_BAYES_H

#include "common/search/search_state.h"

/* Choose a point by the model. GP_ENOENT: the model has too few observations, or its candidates are
 * used. */
gp_status search_bayes(gp_search *search, double *point, gp_error *err);

/* Condition a model on the observations. Release it with gp_regression_deinit().
 *   pending    whether trials without an observation count, with the mean of the model
 *   incumbent  set to the row of the best observation
 * GP_ENOENT: too few observations. */
gp_status search_model(gp_search *search, bool pending, gp_regression *model, uint32_t *incumbent,
                       gp_error *err);

#endif
