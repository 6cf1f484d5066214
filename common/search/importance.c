/* Importance of parameters: first-order Sobol indices of the mean of the model, estimated with two
 * independent samples and their mixtures (Saltelli et al., "Variance based sensitivity analysis of
 * model output", Comput. Phys. Commun. 181, 2010). */
#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/rng.h"
#include "common/search/bayes.h"
#include "common/search/sobol.h"

enum { SAMPLES = 2048 };

/* Return the mean of the model at coordinates of the unit cube, after rounding to the space. */
static double mean_at(const gp_search *search, gp_regression *model, const double *unit)
{
    double point[GP_SEARCH_PARAMETERS_MAX], rounded[GP_SEARCH_PARAMETERS_MAX];

    gp_space_decode(search->space, unit, point);
    gp_space_encode(search->space, point, rounded);
    return gp_regression_mean(model, rounded);
}

/* Set the index of each parameter: the part of the variance of the mean that the parameter explains
 * alone. */
static void estimate(const gp_search *search, gp_regression *model, double *indices)
{
    const uint32_t count = search->space->count, stream = gp_rng_stream(GP_RNG_SEARCH, SEARCH_IMPORTANCE);
    double sum = 0.0, squares = 0.0, explained[GP_SEARCH_PARAMETERS_MAX] = { 0 };

    for (uint32_t i = 0; i < SAMPLES; i++) {
        double a[GP_SEARCH_PARAMETERS_MAX], b[GP_SEARCH_PARAMETERS_MAX];

        /* A second scrambling of the sequence would not be independent of the first one. */
        gp_sobol_point(search->options.seed, stream, 0, i, count, a);
        search_draw(search, SEARCH_IMPORTANCE, 1, i, b);
        const double of_a = mean_at(search, model, a), of_b = mean_at(search, model, b);

        sum += of_a + of_b;
        squares += of_a * of_a + of_b * of_b;
        for (uint32_t k = 0; k < count; k++) {
            const double kept = a[k];

            a[k] = b[k];
            explained[k] += of_b * (mean_at(search, model, a) - of_a);
            a[k] = kept;
        }
    }
    const double variance = squares / (2 * SAMPLES) - sum / (2 * SAMPLES) * (sum / (2 * SAMPLES));

    for (uint32_t k = 0; k < count; k++)
        indices[k] = variance > 0.0 ? fmin(fmax(explained[k] / SAMPLES / variance, 0.0), 1.0) : 0.0;
}

gp_status gp_search_importance(gp_search *search, char **importance, gp_error *err)
{
    double indices[GP_SEARCH_PARAMETERS_MAX];
    gp_regression model;
    gp_buffer buffer;
    gp_json_writer writer;
    uint32_t incumbent;
    size_t bytes;
    gp_status status = search_model(search, false, &model, &incumbent, err);

    if (status != GP_OK)
        return status;
    estimate(search, &model, indices);
    gp_regression_deinit(&model);
    gp_buffer_init(&buffer, GP_SEARCH_SPACE_BYTES_MAX);
    gp_json_writer_init(&writer, &buffer, false);
    gp_json_begin_object(&writer, NULL);
    for (uint32_t k = 0; k < search->space->count; k++)
        gp_json_put_rounded(&writer, search->space->parameters[k].name, "%.4f", indices[k]);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    if (status == GP_OK)
        *importance = (char *)gp_buffer_take(&buffer, &bytes);
    gp_buffer_deinit(&buffer);
    return status;
}
