/* Gaussian process regression (Rasmussen, Williams: "Gaussian Processes for Machine Learning",
 * 2006) with the Matern 5/2 kernel, a length scale for each coordinate and an unknown mean.
 *
 * Inputs are points of the unit cube; targets have mean 0 and variance 1. Coordinates of categories
 * are equal or differ by 1. The hyperparameters are logarithms: of the length scales, of the
 * signal's variance, of the noise's variance. All sums have a fixed order, so results depend on the
 * inputs only. */
#ifndef GP_REGRESSION_H
#define GP_REGRESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_REGRESSION_BATCH = 16, GP_REGRESSION_DIMENSIONS_MAX = 64 };

/* Model of `count` observations, followed by `pending` points without a value. */
typedef struct gp_regression {
    uint32_t dimensions;
    uint32_t count;   /* observations */
    uint32_t pending; /* points that reduce the variance, but do not change the mean */
    uint32_t stride;  /* largest count + pending, a multiple of 8 */
    bool category[GP_REGRESSION_DIMENSIONS_MAX];
    double noise_mean, noise_deviation;             /* prior of the noise's hyperparameter */
    double theta[GP_REGRESSION_DIMENSIONS_MAX + 2]; /* hyperparameters */
    double *inputs;                                 /* [dimensions, stride]; owned, like the arrays below */
    double *targets;                                /* [stride] */
    double *doubts;  /* [stride] variances of noise in single targets, see gp_regression_add() */
    double *weights; /* [stride] inverse covariance times targets */
    double *factor;  /* [stride, stride] lower Cholesky factor of the covariance */
    double *slope;   /* [stride, stride] derivative of the kernel, and then the inverse covariance */
    double *batch;   /* [stride, GP_REGRESSION_BATCH] */
} gp_regression;

/* Allocate a model for at most `rows` observations and pending points; release it with
 * gp_regression_deinit(). The caller sets category, and adds observations. The noise has a prior
 * for nearly exact values; the caller may change it before a fit. */
gp_status gp_regression_init(gp_regression *model, uint32_t rows, uint32_t dimensions, gp_error *err);
void gp_regression_deinit(gp_regression *model);

/* Append an observation at input[dimensions].
 *   doubt  variance of its target in addition to the common noise, relative to the signal's
 *          variance; 0: none */
void gp_regression_add(gp_regression *model, const double *input, double target, double doubt);

/* Return the negative logarithm of the marginal likelihood of the observations, and set its
 * gradient with respect to theta; INFINITY if the covariance is singular. The factor is
 * overwritten. */
double gp_regression_likelihood(gp_regression *model, const double *theta, double *gradient);

/* Set theta to the prior mean of the hyperparameters. */
void gp_regression_prior(const gp_regression *model, double *theta);

/* Improve model->theta: maximize the posterior of the hyperparameters, from the current values and,
 * if `restart`, also from their prior mean. */
void gp_regression_fit(gp_regression *model, uint32_t evaluations_max, bool restart);

/* Condition on the observations with model->theta. The noise is raised until the covariance can be
 * factorized. */
void gp_regression_condition(gp_regression *model);

/* Append a pending point after gp_regression_condition(). An observation that equals the posterior
 * mean leaves the mean as it is, so only the variance changes. */
void gp_regression_add_pending(gp_regression *model, const double *input);

/* Return the posterior mean at a point. */
double gp_regression_mean(gp_regression *model, const double *point);

/* Predict at `count` points (at most GP_REGRESSION_BATCH), point[i] with `dimensions` coordinates:
 * posterior means and standard deviations of the function without noise. */
void gp_regression_predict(gp_regression *model, const double *const *points, uint32_t count, double *means,
                           double *deviations);

/* Predict at one point, with the gradients of mean and deviation. */
void gp_regression_predict_gradient(gp_regression *model, const double *point, double *mean,
                                    double *deviation, double *mean_gradient, double *deviation_gradient);

#endif
