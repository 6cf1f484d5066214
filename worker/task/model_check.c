/* model_check.c -- compare the backward pass with central differences along lines through the
 * parameters of one tensor. Along a line, all n tensor parameters move the loss together. So
 * float32 is precise enough, while a single parameter's effect would be lost in rounding. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/rng.h"
#include "worker/task/model_state.h"

typedef struct line_check {
    gp_model *model;
    const gp_samples *samples;
    gp_gradient_check *out;
    const float *gradients; /* copy, because passes overwrite them */
    float *before, *along;  /* [largest tensor] original parameters; unit direction */
    double noise;           /* rounding error of a loss */
    double *worst;          /* largest error so far */
} line_check;

static double length_of(const float *values, size_t count)
{
    double squares = 0.0;

    for (size_t i = 0; i < count; i++)
        squares += (double)values[i] * values[i];
    return sqrt(squares);
}

static gp_status loss_at(const line_check *c, const gp_model_tensor *tensor, double step, double *loss,
                         gp_error *err)
{
    for (size_t i = 0; i < tensor->count; i++)
        tensor->parameters[i] = (float)(c->before[i] + step * c->along[i]);
    return gp_model_pass(c->model, c->samples, false, loss, err);
}

/* Compare the slope from the gradient with the measured slope along one line. */
static gp_status line_try(const line_check *c, const gp_model_tensor *tensor, gp_error *err)
{
    double root = length_of(c->before, tensor->count), above, below, slope = 0.0;
    double step = c->out->step > 0.0 ? c->out->step * sqrt((double)tensor->count) : 1e-2 * root;

    if (c->out->step <= 0.0 && step < 1e-4 * sqrt((double)tensor->count))
        step = 1e-4 * sqrt((double)tensor->count);
    for (size_t i = 0; i < tensor->count; i++)
        slope += (double)c->gradients[tensor->first + i] * c->along[i];
    gp_status status = loss_at(c, tensor, step, &above, err);

    if (status == GP_OK)
        status = loss_at(c, tensor, -step, &below, err);
    memcpy(tensor->parameters, c->before, tensor->count * sizeof(float));
    if (status != GP_OK)
        return status;
    double measured = (above - below) / (2.0 * step);
    double larger = fmax(fmax(fabs(slope), fabs(measured)), 1e-30), apart = fabs(slope - measured);
    /* Ignore the difference that rounding alone can explain. */
    double beyond = fmax(apart - c->noise / step, 0.0) / larger;

    if (!(beyond <= *c->worst) || c->out->worst[0] == '\0') {
        *c->worst = isnan(beyond) ? INFINITY : beyond;
        c->out->error = apart / larger;
        c->out->slope = slope;
        c->out->measured = measured;
        snprintf(c->out->worst, sizeof(c->out->worst), "%s", tensor->name);
    }
    return GP_OK;
}

static gp_status tensors_try(line_check *c, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < gp_model_tensor_count(c->model) && status == GP_OK; i++) {
        gp_model_tensor tensor;

        gp_model_get_tensor(c->model, i, &tensor);
        if (tensor.frozen)
            continue;
        memcpy(c->before, tensor.parameters, tensor.count * sizeof(float));
        const float *gradient = c->gradients + tensor.first;
        const double length = length_of(gradient, tensor.count);

        for (size_t k = 0; k < tensor.count; k++)
            c->along[k] = length > 0.0 ? (float)(gradient[k] / length) : 0.0f;
        status = line_try(c, &tensor, err);
        for (size_t k = 0; k < tensor.count; k++) { /* random signs */
            const float each = (float)(1.0 / sqrt((double)tensor.count));
            uint32_t words[4];

            gp_rng_draw(words, c->out->seed, gp_rng_stream(GP_RNG_PARFOR, 0), (uint32_t)(tensor.first >> 32),
                        (uint32_t)tensor.first, (uint32_t)k);
            c->along[k] = words[0] & 1 ? each : -each;
        }
        if (status == GP_OK)
            status = line_try(c, &tensor, err);
    }
    return status;
}

gp_status gp_model_check_gradients(gp_model *model, const gp_samples *samples, gp_gradient_check *check,
                                   gp_error *err)
{
    const gp_graph *graph = model->graph;
    size_t largest = 1;
    double loss, worst = 0.0;
    gp_status status;

    if (graph->learned_count != graph->blob_count || samples->count == 0 || model->loss.forward.count != 0)
        return gp_fail(err, graph->learned_count != graph->blob_count ? GP_EUNSUPPORTED : GP_EINVAL,
                       "gradient checks need at least one sample and a network without running statistics");
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if ((size_t)graph->parameters[i].count > largest)
            largest = (size_t)graph->parameters[i].count;
    if (check->tolerance <= 0.0)
        check->tolerance = 0.02;
    check->error = check->slope = check->measured = 0.0;
    check->worst[0] = '\0';
    float *gradients = gp_malloc(graph->blob_count * sizeof(float));
    line_check c = { .model = model,
                     .samples = samples,
                     .out = check,
                     .gradients = gradients,
                     .worst = &worst,
                     .before = gp_malloc(largest * sizeof(float)),
                     .along = gp_malloc(largest * sizeof(float)) };

    status = gradients == NULL || c.before == NULL || c.along == NULL
                 ? gp_fail(err, GP_ENOMEM, "no memory to check %zu gradients", graph->blob_count)
                 : gp_model_pass(model, samples, true, &loss, err);
    if (status == GP_OK) {
        memcpy(gradients, model->gradients, graph->blob_count * sizeof(float));
        c.noise = 4.0 * 6e-8 * (fabs(loss) + samples->count);
        status = tensors_try(&c, err);
    }
    if (status == GP_OK && worst > check->tolerance)
        status = gp_fail(err, GP_EINVAL,
                         "the gradient of %s is wrong: the loss has slope %.6g according to it, but a "
                         "measured slope of %.6g; the relative error is %.2g, more than %g",
                         check->worst, check->slope, check->measured, check->error, check->tolerance);
    gp_free(gradients);
    gp_free(c.before);
    gp_free(c.along);
    model->fresh = true;
    return status;
}
