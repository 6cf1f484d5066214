#include "worker/train/loss_scale.h"

gp_loss_scale gp_loss_scale_begin(const gp_train_options *options)
{
    return (gp_loss_scale){ .scale = options->precision == GP_PRECISION_F16 ? options->loss_scale : 0.0 };
}

/* Divide only by powers of two, so that scaling does not round the gradients. */
double gp_loss_scale_of_sum(const gp_loss_scale *scale, uint32_t samples)
{
    double sum = scale->scale;

    for (uint64_t power = 1; power < samples; power *= 2)
        sum /= 2;
    return sum;
}

gp_loss_scale_rule gp_loss_scale_rule_of(const gp_train_options *options)
{
    return (gp_loss_scale_rule){ .growth = options->loss_scale_growth,
                                 .backoff = options->loss_scale_backoff,
                                 .interval = options->loss_scale_interval };
}

bool gp_loss_scale_step(gp_loss_scale *scale, const gp_train_options *options, double bad)
{
    const gp_loss_scale_rule rule = gp_loss_scale_rule_of(options);
    bool skip = scale->scale != 0.0 && gp_loss_scale_move(&scale->scale, &scale->good, &rule, bad);

    scale->skips = skip ? scale->skips + 1 : 0;
    return skip;
}
