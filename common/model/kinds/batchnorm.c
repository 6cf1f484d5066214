/* batchnorm.c -- batch normalization (Ioffe & Szegedy, ICML 2015). Training uses the moments of
 * the samples in a call. Prediction uses running statistics; each commit moves these towards the
 * moments over all ranks. */
#include <stddef.h>

#include "common/model/graph/graph.h"
#include "common/model/kinds/groupnorm.h"

typedef struct batchnorm_settings {
    double epsilon, momentum;
} batchnorm_settings;

static const gp_param batchnorm_params[] = {
    { "epsilon", NULL, GP_PARAM_F64, offsetof(batchnorm_settings, epsilon), .fallback = 1e-5, .min = 1e-12,
      .max = 1.0, .seed_name = "Epsilon", .torch_name = "eps", .help = "added to the variance" },
    { "momentum", NULL, GP_PARAM_F64, offsetof(batchnorm_settings, momentum), .fallback = 0.1, .min = 0.0,
      .max = 1.0, .seed_name = "MeanDecay", .torch_name = "momentum",
      .help = "weight of the moments of a step in the running statistics" },
    { 0 },
};

static gp_status batchnorm_infer(gp_infer *infer, gp_error *err)
{
    const batchnorm_settings *settings = infer->settings;
    const gp_shape channels = gp_shape1(infer->inputs[0].dim[0]);
    const int64_t per_sample = gp_shape_count(&infer->inputs[0]) / channels.dim[0];

    gp_groupnorm_infer(infer, err); /* scale and offset */
    infer->parameter_count = 4;
    infer->parameters[2] = (gp_parameter_need){ .role = "mean",
                                                .shape = channels,
                                                .initializer = GP_INIT_ZEROS,
                                                .statistic = GP_STATISTIC_MEAN,
                                                .rate = settings->momentum,
                                                .per_sample = per_sample };
    infer->parameters[3] = (gp_parameter_need){ .role = "variance",
                                                .shape = channels,
                                                .initializer = GP_INIT_ONES,
                                                .statistic = GP_STATISTIC_VARIANCE,
                                                .rate = settings->momentum,
                                                .per_sample = per_sample };
    return GP_OK;
}

static gp_status batchnorm_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    const gp_shape moments = gp_shape2(2, lowering->graph->values[lowering->parameters[0]].shape.dim[0]);
    gp_status status = GP_OK;

    if (lowering->dy != GP_NO_VALUE) {
        op->in[3] = lowering->saved[0];
    } else if (lowering->phase == GP_PHASE_INFER) {
        op->code = GP_OP_BATCHNORM_INFER;
    } else {
        status = gp_lowering_save(lowering, 0, true, GP_F32, &moments, err);
        op->in[4] = GP_NO_VALUE; /* training does not read the running variance */
        op->out[1] = lowering->saved[0];
        op->out[2] = lowering->gradients[2];
        op->out[3] = lowering->gradients[3];
    }
    return status;
}

static const gp_kind_check batchnorm_checks[] = {
    { { 3, { 3, 4, 5 } }, NULL, 4, false },
    { { 3, { 35, 6, 7 } }, "epsilon=1e-3", 3, true },
    { { 1, { 6 } }, NULL, 5, false },
    { .samples = 0 },
};

const gp_kind gp_kind_batchnorm = {
    .name = "batchnorm",
    .onnx = "BatchNormalization",
    .help = "normalize each channel to mean 0 and deviation 1 over the batch, then scale and shift",
    .flags = GP_KIND_COUPLES_SAMPLES,
    .settings_table = batchnorm_params,
    .settings_bytes = sizeof(batchnorm_settings),
    .checks = batchnorm_checks,
    .infer = batchnorm_infer,
    .op = GP_OP_BATCHNORM,
    .op_backward = GP_OP_BATCHNORM_BACKWARD,
    .backward_reads = GP_READS_INPUT,
    .factors = 1,
    .prepare = batchnorm_prepare,
};
