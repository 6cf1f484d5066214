#include "worker/loss_scale.h"

#define SCALE_MIN (1 / GP_LOSS_SCALE_MAX)

gp_loss_scale gp_loss_scale_begin(const gp_train_options *options)
{
    return (gp_loss_scale){ .scale = options->precision == GP_PRECISION_F16 ? options->loss_scale : 0.0 };
}

/* By powers of two, so that gradients come back as they were. */
double gp_loss_scale_of_sum(const gp_loss_scale *scale, uint32_t samples)
{
    double sum = scale->scale;

    for (uint64_t power = 1; power < samples; power *= 2)
        sum /= 2;
    return sum;
}

bool gp_loss_scale_step(gp_loss_scale *scale, const gp_train_options *options, double bad)
{
    if (scale->scale == 0.0)
        return false;
    if (bad > 0.0) {
        if (scale->scale * options->loss_scale_backoff >= SCALE_MIN)
            scale->scale *= options->loss_scale_backoff;
        scale->good = 0;
        scale->skips++;
        return true;
    }
    scale->skips = 0;
    if (options->loss_scale_interval > 0 && ++scale->good >= options->loss_scale_interval) {
        if (scale->scale * options->loss_scale_growth <= GP_LOSS_SCALE_MAX)
            scale->scale *= options->loss_scale_growth;
        scale->good = 0;
    }
    return false;
}
