/* Implement regression.h. */
#include "common/search/regression.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/search/minimize.h"

#define LOG_2PI      1.8378770664093454836
#define SQRT_5       2.2360679774997896964
#define VARIANCE_MIN 1e-20 /* of a prediction; rounding can make it negative */

/* Variance of the unknown constant mean, relative to the signal's variance (Rasmussen, Williams,
 * section 2.7). Targets around a minimum shift their average. A model that returns to the average
 * far from all observations takes unexplored regions for promising. */
#define MEAN_VARIANCE 1.0

/* Smallest pivot relative to its diagonal element; a smaller one is rounding. */
#define PIVOT_MIN 1e-12

enum { LANES = 8 };

/* Prior and range of a hyperparameter: normal in the logarithm. */
typedef struct prior {
    double mean, deviation, low, high;
} prior;

static prior length_prior(uint32_t dimensions)
{
    return (prior){ log(0.2) + 0.5 * log(dimensions), 1.0, log(0.005), log(100.0) };
}

static const prior signal_prior = { 0.0, 1.0, -6.0, 6.0 };

static prior noise_prior(const gp_regression *model)
{
    return (prior){ model->noise_mean, model->noise_deviation, -18.5, 0.0 };
}

gp_status gp_regression_init(gp_regression *model, uint32_t rows, uint32_t dimensions, gp_error *err)
{
    const uint32_t stride = (rows + LANES - 1) / LANES * LANES;

    *model = (gp_regression){
        .dimensions = dimensions, .stride = stride, .noise_mean = -9.0, .noise_deviation = 3.0
    };
    model->inputs = gp_calloc(stride, dimensions * sizeof(double));
    model->targets = gp_calloc(stride, sizeof(double));
    model->doubts = gp_calloc(stride, sizeof(double));
    model->weights = gp_calloc(stride, sizeof(double));
    model->factor = gp_calloc(stride, stride * sizeof(double));
    model->slope = gp_calloc(stride, stride * sizeof(double));
    model->batch = gp_calloc(stride, GP_REGRESSION_BATCH * sizeof(double));
    if (model->inputs != NULL && model->targets != NULL && model->doubts != NULL && model->weights != NULL &&
        model->factor != NULL && model->slope != NULL && model->batch != NULL)
        return GP_OK;
    gp_regression_deinit(model);
    return gp_fail(err, GP_ENOMEM, "no memory for a model of %u points", rows);
}

void gp_regression_deinit(gp_regression *model)
{
    gp_free(model->inputs);
    gp_free(model->targets);
    gp_free(model->doubts);
    gp_free(model->weights);
    gp_free(model->factor);
    gp_free(model->slope);
    gp_free(model->batch);
    *model = (gp_regression){ 0 };
}

static void set_input(gp_regression *model, uint32_t row, const double *input)
{
    assert(row < model->stride);
    for (uint32_t k = 0; k < model->dimensions; k++)
        model->inputs[(size_t)k * model->stride + row] = input[k];
}

void gp_regression_add(gp_regression *model, const double *input, double target, double doubt)
{
    set_input(model, model->count, input);
    model->doubts[model->count] = doubt;
    model->targets[model->count++] = target;
}

/* ---- linear algebra ---- */

/* Return the dot product, summed in lanes that the compiler can vectorize. */
static double dot(const double *a, const double *b, uint32_t count)
{
    double lane[LANES] = { 0 };
    uint32_t i = 0;

    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (int l = 0; i < count; i++, l++)
        lane[l] += a[i] * b[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static double *row_of(double *matrix, const gp_regression *model, uint32_t row)
{
    return matrix + (size_t)row * model->stride;
}

/* Replace the lower triangle of `factor` by its Cholesky factor. Return false if the matrix is not
 * positive definite. */
static bool factorize(gp_regression *model)
{
    for (uint32_t i = 0; i < model->count; i++) {
        double *row = row_of(model->factor, model, i);

        for (uint32_t j = 0; j < i; j++) {
            const double *other = row_of(model->factor, model, j);

            row[j] = (row[j] - dot(row, other, j)) / other[j];
        }
        const double square = row[i] - dot(row, row, i);

        if (!(square > PIVOT_MIN * row[i]))
            return false;
        row[i] = sqrt(square);
    }
    return true;
}

/* Solve factor * x = x. */
static void solve_forward(gp_regression *model, double *x, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const double *row = row_of(model->factor, model, i);

        x[i] = (x[i] - dot(row, x, i)) / row[i];
    }
}

/* Solve transpose(factor) * x = x. */
static void solve_backward(gp_regression *model, double *x, uint32_t count)
{
    for (uint32_t i = count; i-- > 0;) {
        const double *row = row_of(model->factor, model, i);

        x[i] /= row[i];
        for (uint32_t j = 0; j < i; j++)
            x[j] -= x[i] * row[j];
    }
}

/* ---- kernel ---- */

/* Return 1 / length^2 of a coordinate. */
static double inverse_square(const double *theta, uint32_t k)
{
    return exp(-2.0 * theta[k]);
}

/* Add the squared distances in coordinate k between x and the first `count` inputs, weighted. */
static void add_squares(const gp_regression *model, uint32_t k, double x, double weight, uint32_t count,
                        double *squares)
{
    const double *inputs = model->inputs + (size_t)k * model->stride;

    if (model->category[k]) {
        for (uint32_t j = 0; j < count; j++)
            squares[j] += inputs[j] != x ? weight : 0.0;
    } else {
        for (uint32_t j = 0; j < count; j++)
            squares[j] += (inputs[j] - x) * (inputs[j] - x) * weight;
    }
}

/* Return the variance of the function, without noise. */
static double prior_variance(const double *theta, uint32_t dimensions)
{
    return (1.0 + MEAN_VARIANCE) * exp(theta[dimensions]);
}

/* Return the kernel at a squared scaled distance, and -2 times its derivative with respect to that
 * square. */
static double kernel(double square, double signal, double *derivative)
{
    const double r = SQRT_5 * sqrt(square), e = signal * exp(-r);

    *derivative = (5.0 / 3.0) * (1.0 + r) * e;
    return (1.0 + r + r * r / 3.0) * e + MEAN_VARIANCE * signal;
}

/* Set the lower triangles of `factor` to the covariance and of `slope` to the derivatives. */
static void set_covariance(gp_regression *model, const double *theta)
{
    const double signal = exp(theta[model->dimensions]), noise = exp(theta[model->dimensions + 1]);

    for (uint32_t i = 0; i < model->count; i++) {
        double *row = row_of(model->factor, model, i), *slope = row_of(model->slope, model, i);

        memset(slope, 0, i * sizeof(*slope));
        for (uint32_t k = 0; k < model->dimensions; k++)
            add_squares(model, k, model->inputs[(size_t)k * model->stride + i], inverse_square(theta, k), i,
                        slope);
        for (uint32_t j = 0; j < i; j++)
            row[j] = kernel(slope[j], signal, &slope[j]);
        row[i] = prior_variance(theta, model->dimensions) + model->doubts[i] * signal + noise;
    }
}

/* ---- hyperparameters ---- */

/* Set the upper triangle of `factor`, with the diagonal in `diagonal`, to the transposed inverse of
 * the Cholesky factor: row j has column j of the inverse. */
static void invert_factor(gp_regression *model, double *diagonal)
{
    for (uint32_t j = 0; j < model->count; j++) {
        double *column = row_of(model->factor, model, j);

        diagonal[j] = 1.0 / column[j];
        for (uint32_t i = j + 1; i < model->count; i++) {
            const double *row = row_of(model->factor, model, i);

            column[i] = -(row[j] * diagonal[j] + dot(row + j + 1, column + j + 1, i - j - 1)) / row[i];
        }
    }
}

/* Return the element of the inverse covariance for rows j <= i, from invert_factor(). */
static double inverse_element(gp_regression *model, const double *diagonal, uint32_t i, uint32_t j)
{
    const double *a = row_of(model->factor, model, i), *b = row_of(model->factor, model, j);

    return diagonal[i] * (i == j ? diagonal[i] : b[i]) + dot(a + i + 1, b + i + 1, model->count - i - 1);
}

/* Return the sum of the squared distances in coordinate k from row i, weighted by factors[i]. */
static double weighted_squares(const gp_regression *model, uint32_t k, uint32_t i, const double *factors)
{
    const double *inputs = model->inputs + (size_t)k * model->stride;
    double sum = 0.0, lane[LANES] = { 0 };
    uint32_t j = 0;

    if (model->category[k]) {
        for (; j < i; j++)
            sum += inputs[j] != inputs[i] ? factors[j] : 0.0;
        return sum;
    }
    for (; j + LANES <= i; j += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (inputs[j + l] - inputs[i]) * (inputs[j + l] - inputs[i]) * factors[j + l];
    for (; j < i; j++)
        sum += (inputs[j] - inputs[i]) * (inputs[j] - inputs[i]) * factors[j];
    return sum + (((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7])));
}

double gp_regression_likelihood(gp_regression *model, const double *theta, double *gradient)
{
    const uint32_t count = model->count, dimensions = model->dimensions;
    const double noise = exp(theta[dimensions + 1]);
    double sum = 0.5 * LOG_2PI * count, trace = 0.0;
    double *weights = model->weights, *diagonal = model->batch, *products = model->batch + model->stride;

    set_covariance(model, theta);
    if (!factorize(model))
        return INFINITY;
    memcpy(weights, model->targets, count * sizeof(*weights));
    solve_forward(model, weights, count);
    for (uint32_t i = 0; i < count; i++)
        sum += 0.5 * weights[i] * weights[i] + log(row_of(model->factor, model, i)[i]);
    solve_backward(model, weights, count);

    /* The derivative for a parameter p is half the trace of (inverse - weights weights^T) dK/dp. */
    invert_factor(model, diagonal);
    memset(gradient, 0, (dimensions + 2) * sizeof(*gradient));
    for (uint32_t i = 0; i < count; i++) {
        double *slope = row_of(model->slope, model, i);

        for (uint32_t j = 0; j < i; j++)
            products[j] = inverse_element(model, diagonal, i, j) - weights[i] * weights[j];
        trace += inverse_element(model, diagonal, i, i) - weights[i] * weights[i];
        for (uint32_t j = 0; j < i; j++)
            slope[j] *= products[j];
        for (uint32_t k = 0; k < dimensions; k++)
            gradient[k] += inverse_square(theta, k) * weighted_squares(model, k, i, slope);
    }

    /* K is its own derivative for a common factor of signal and noise, and the trace is then count
     * - weights^T targets. */
    gradient[dimensions + 1] = 0.5 * noise * trace;
    gradient[dimensions] = 0.5 * (count - dot(weights, model->targets, count)) - gradient[dimensions + 1];
    return sum;
}

void gp_regression_prior(const gp_regression *model, double *theta)
{
    for (uint32_t k = 0; k < model->dimensions; k++)
        theta[k] = length_prior(model->dimensions).mean;
    theta[model->dimensions] = signal_prior.mean;
    theta[model->dimensions + 1] = model->noise_mean;
}

static prior prior_of(const gp_regression *model, uint32_t k)
{
    return k < model->dimensions    ? length_prior(model->dimensions)
           : k == model->dimensions ? signal_prior
                                    : noise_prior(model);
}

/* Return the negative logarithm of the posterior of the hyperparameters, up to a constant. */
static double posterior(void *context, const double *theta, double *gradient)
{
    gp_regression *model = context;
    double value = gp_regression_likelihood(model, theta, gradient);

    for (uint32_t k = 0; isfinite(value) && k < model->dimensions + 2; k++) {
        const prior p = prior_of(model, k);
        const double z = (theta[k] - p.mean) / p.deviation;

        value += 0.5 * z * z;
        gradient[k] += z / p.deviation;
    }
    return value;
}

void gp_regression_fit(gp_regression *model, uint32_t evaluations_max, bool restart)
{
    double low[GP_MINIMIZE_DIMENSIONS_MAX], high[GP_MINIMIZE_DIMENSIONS_MAX],
        theta[GP_MINIMIZE_DIMENSIONS_MAX];
    const uint32_t count = model->dimensions + 2;

    for (uint32_t k = 0; k < count; k++) {
        low[k] = prior_of(model, k).low;
        high[k] = prior_of(model, k).high;
    }
    const double value = gp_minimize(posterior, model, model->theta, low, high, count, evaluations_max);

    if (!restart && isfinite(value))
        return;
    gp_regression_prior(model, theta);
    const double other = gp_minimize(posterior, model, theta, low, high, count, evaluations_max);

    if (!(value <= other))
        memcpy(model->theta, theta, count * sizeof(*theta));
}

/* ---- predictions ---- */

void gp_regression_condition(gp_regression *model)
{
    double *noise = &model->theta[model->dimensions + 1];

    model->pending = 0;
    for (set_covariance(model, model->theta); !factorize(model); set_covariance(model, model->theta))
        *noise += 1.0;
    memcpy(model->weights, model->targets, model->count * sizeof(*model->weights));
    solve_forward(model, model->weights, model->count);
    solve_backward(model, model->weights, model->count);
}

/* Set `covariances` to the kernel between a point and all rows, and `derivatives` as kernel()
 * does. */
static void set_covariances(const gp_regression *model, const double *point, double *covariances,
                            double *derivatives)
{
    const uint32_t rows = model->count + model->pending;
    const double signal = exp(model->theta[model->dimensions]);

    memset(derivatives, 0, rows * sizeof(*derivatives));
    for (uint32_t k = 0; k < model->dimensions; k++)
        add_squares(model, k, point[k], inverse_square(model->theta, k), rows, derivatives);
    for (uint32_t j = 0; j < rows; j++)
        covariances[j] = kernel(derivatives[j], signal, &derivatives[j]);
}

void gp_regression_add_pending(gp_regression *model, const double *input)
{
    const uint32_t row = model->count + model->pending;
    double *covariances = row_of(model->factor, model, row);
    const double noise = exp(model->theta[model->dimensions + 1]);

    set_input(model, row, input);
    set_covariances(model, input, covariances, model->slope);
    solve_forward(model, covariances, row);
    const double square =
        prior_variance(model->theta, model->dimensions) + noise - dot(covariances, covariances, row);

    covariances[row] = sqrt(square > noise ? square : noise);
    model->weights[row] = 0.0;
    model->pending++;
}

double gp_regression_mean(gp_regression *model, const double *point)
{
    set_covariances(model, point, model->slope, row_of(model->slope, model, 1));
    return dot(model->slope, model->weights, model->count);
}

void gp_regression_predict(gp_regression *model, const double *const *points, uint32_t count, double *means,
                           double *deviations)
{
    enum { WIDTH = GP_REGRESSION_BATCH };
    const uint32_t rows = model->count + model->pending;
    double *covariances = model->slope, *derivatives = row_of(model->slope, model, 1);
    double squares[WIDTH] = { 0 };

    assert(count <= WIDTH && model->stride > 1);
    memset(model->batch, 0, (size_t)rows * WIDTH * sizeof(*model->batch));
    for (uint32_t i = 0; i < count; i++) {
        set_covariances(model, points[i], covariances, derivatives);
        means[i] = dot(covariances, model->weights, model->count);
        for (uint32_t j = 0; j < rows; j++)
            model->batch[(size_t)j * WIDTH + i] = covariances[j];
    }

    /* Solve with the factor for all points at once: column i of the batch belongs to point i. */
    for (uint32_t row = 0; row < rows; row++) {
        const double *factor = row_of(model->factor, model, row);
        double *solution = model->batch + (size_t)row * WIDTH, sum[WIDTH];

        memcpy(sum, solution, sizeof(sum));
        for (uint32_t j = 0; j < row; j++)
            for (int i = 0; i < WIDTH; i++)
                sum[i] -= factor[j] * model->batch[(size_t)j * WIDTH + i];
        for (int i = 0; i < WIDTH; i++) {
            solution[i] = sum[i] / factor[row];
            squares[i] += solution[i] * solution[i];
        }
    }
    for (uint32_t i = 0; i < count; i++)
        deviations[i] =
            sqrt(fmax(prior_variance(model->theta, model->dimensions) - squares[i], VARIANCE_MIN));
}

void gp_regression_predict_gradient(gp_regression *model, const double *point, double *mean,
                                    double *deviation, double *mean_gradient, double *deviation_gradient)
{
    const uint32_t rows = model->count + model->pending;
    double *solution = model->batch, *derivatives = model->batch + model->stride;

    set_covariances(model, point, solution, derivatives);
    *mean = dot(solution, model->weights, model->count);
    solve_forward(model, solution, rows);
    const double variance =
        fmax(prior_variance(model->theta, model->dimensions) - dot(solution, solution, rows), VARIANCE_MIN);

    *deviation = sqrt(variance);
    solve_backward(model, solution, rows);
    for (uint32_t k = 0; k < model->dimensions; k++) {
        const double *inputs = model->inputs + (size_t)k * model->stride;
        double of_mean = 0.0, of_square = 0.0;

        for (uint32_t j = 0; j < rows && !model->category[k]; j++) {
            const double change = (inputs[j] - point[k]) * derivatives[j];

            of_mean += change * model->weights[j];
            of_square += change * solution[j];
        }
        mean_gradient[k] = of_mean * inverse_square(model->theta, k);
        deviation_gradient[k] = -of_square * inverse_square(model->theta, k) / *deviation;
    }
}
