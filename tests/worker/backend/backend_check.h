/* backend_check.h: references for backend tests: the oracle's step, and a network around each layer
 * kind. */
#ifndef GP_BACKEND_CHECK_H
#define GP_BACKEND_CHECK_H

#include "tests/ref/run.h"
#include "tests/worker/backend/backend_net.h"

/* Run the oracle on the first `count` samples. */
static inline gp_ref_run *ask_oracle(const net *n, gp_phase phase, uint32_t count)
{
    double *blob = gp_calloc(n->graph->blob_count + 1, sizeof(double));
    double *input = gp_calloc(count * n->pixels + 1, sizeof(double));
    gp_ref_batch batch = { .blob = blob,
                           .input = input,
                           .targets = n->labels,
                           .count = count,
                           .seed = 9,
                           .step = 4,
                           .position = 1000 };
    gp_ref_run *run;

    gp_ref_widen(n->parameters, n->graph->blob_count, blob);
    gp_ref_input(n->spec, GP_U8, n->bytes, count, input);
    run = gp_ref_run_new(n->graph, phase, &batch);
    gp_free(blob);
    gp_free(input);
    return run;
}

/* Return the largest parameter error, relative to the parameter's gradient norm or to a twentieth
 * of the whole gradient norm, whichever is larger. */
static inline double gradient_error(const net *n, const float *got, const double *expected)
{
    double norm = 0, worst = 0;

    for (size_t i = 0; i < n->graph->blob_count; i++)
        norm += expected[i] * expected[i];
    for (uint32_t i = 0; i < n->graph->parameter_count; i++) {
        const gp_parameter *parameter = &n->graph->parameters[i];
        double error = distance(got + parameter->offset, expected + parameter->offset,
                                (size_t)parameter->count, 0.05 * sqrt(norm));

        if (parameter->statistic == GP_STATISTIC_NONE && !gp_parameter_learns(parameter))
            continue; /* frozen: has no gradient */
        worst = error > worst || isnan(error) ? error : worst;
    }
    return worst;
}

/* Build a network with the layer after another that has weights and keeps the shape, so that dx
 * of the layer reaches a gradient. */
static inline gp_status kind_net(net *n, const gp_kind *kind, const gp_kind_check *check, gp_error *err)
{
    bool image = check->input.rank == 3;
    gp_shape input = image ? check->input : gp_shape3(check->input.dim[0], 1, 1);
    const char *const both[] = { "first", image ? "input" : "flat" };
    char settings[32];
    gp_status status;

    snprintf(settings, sizeof(settings), image ? "channels=%d;kernel=1" : "outputs=%d",
             (int)check->input.dim[0]);
    status = gp_netspec_new(&n->spec, "kind", &input, err);
    if (status == GP_OK && !image)
        status = gp_netspec_add(n->spec, "flat", "flatten", NULL, err);
    if (status == GP_OK)
        status = gp_netspec_add(n->spec, "first", image ? "conv2d" : "fc", settings, err);
    if (status == GP_OK)
        status = gp_netspec_add(n->spec, "tested", kind->name, check->settings, err);
    if (status == GP_OK && kind->extra_inputs > 0)
        status = gp_netspec_connect(n->spec, both, 2, err);
    if (status == GP_OK && (kind->flags & GP_KIND_LOSS) == 0)
        status = gp_netspec_add(n->spec, "head", "fc", "outputs=5", err);
    if (status == GP_OK && (kind->flags & GP_KIND_LOSS) == 0)
        status = gp_netspec_add(n->spec, "loss", "crossentropy", NULL, err);
    if (status == GP_OK)
        status =
            gp_netspec_normalize(n->spec, (const double[]){ 1 / 255.0 }, (const double[]){ -0.4 }, 1, err);
    return status == GP_OK ? net_fill(n, 200, err) : status;
}

typedef struct net_layer {
    const char *kind, *settings;
} net_layer;

static inline gp_status chain_net(net *n, gp_shape input, uint32_t levels, const net_layer *layers,
                                  gp_error *err)
{
    gp_status status = gp_netspec_new(&n->spec, "chain", &input, err);

    for (uint32_t i = 0; status == GP_OK && layers[i].kind != NULL; i++) {
        char name[16];

        snprintf(name, sizeof(name), "l%u", i);
        status = gp_netspec_add(n->spec, name, layers[i].kind, layers[i].settings, err);
    }
    if (status == GP_OK)
        status =
            gp_netspec_normalize(n->spec, (const double[]){ 1 / 255.0 }, (const double[]){ -0.3 }, 1, err);
    return status == GP_OK ? net_fill(n, levels, err) : status;
}

#endif
