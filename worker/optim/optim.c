#include "worker/optim/optim.h"

#include "common/base/alloc.h"

extern const gp_optim_rule gp_optim_sgdm;

/* In the order of gp_solver. */
static const gp_optim_rule *const rules[] = { &gp_optim_sgdm };

struct gp_optim {
    const gp_optim_rule *rule;
    const gp_graph *graph;
    const gp_train_options *options;
    float *state; /* rule->state_blobs blobs */
};

gp_status gp_optim_new(gp_optim **out, const gp_graph *graph, const gp_train_options *options, gp_error *err)
{
    gp_optim *optim = gp_calloc(1, sizeof(*optim));

    if (optim == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an optimiser");
    optim->rule = rules[options->solver];
    optim->graph = graph;
    optim->options = options;
    optim->state = gp_aligned_calloc(64, graph->blob_count * optim->rule->state_blobs * sizeof(float));
    if (optim->state == NULL) {
        gp_optim_free(optim);
        return gp_fail(err, GP_ENOMEM, "no memory for the optimiser's state of %zu parameters",
                       graph->blob_count);
    }
    *out = optim;
    return GP_OK;
}

void gp_optim_free(gp_optim *optim)
{
    if (optim == NULL)
        return;
    gp_free(optim->state);
    gp_free(optim);
}

void gp_optim_step(gp_optim *optim, float *parameters, const float *gradients, double weight, uint32_t epoch)
{
    const gp_train_options *options = optim->options;
    double learn_rate = gp_train_learn_rate(options, epoch);

    for (uint32_t i = 0; i < optim->graph->parameter_count; i++) {
        const gp_parameter *parameter = &optim->graph->parameters[i];

        if (parameter->learn_rate_factor == 0.0)
            continue; /* frozen */
        optim->rule->update(&(gp_update){
            .parameters = parameters + parameter->offset,
            .state = optim->state + parameter->offset,
            .state_stride = optim->graph->blob_count,
            .gradients = gradients + parameter->offset,
            .count = (size_t)parameter->count,
            .gradient_scale = (float)(1.0 / weight),
            .learn_rate = (float)(learn_rate * parameter->learn_rate_factor),
            .momentum = (float)options->momentum,
            .l2 = (float)(options->l2_regularization * parameter->l2_factor),
        });
    }
}
