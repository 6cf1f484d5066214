/* sgdm.c -- stochastic gradient descent with momentum, in the form of MATLAB's trainingOptions("sgdm"):
 *   v <- momentum * v - learn_rate * (gradient + l2 * w),   w <- w + v
 * so the learning rate of a step stays in the velocity; with a constant rate it equals PyTorch's SGD. */
#include "worker/optim/optim.h"

static void sgdm_update(const gp_update *update)
{
    float *restrict w = update->parameters, *restrict v = update->state;
    const float *restrict g = update->gradients;
    const float scale = update->gradient_scale, rate = update->learn_rate, momentum = update->momentum;
    const float l2 = update->l2;

    if (momentum == 0.0f) { /* the velocity is not carried: one blob less through the cache */
        for (size_t i = 0; i < update->count; i++)
            w[i] -= rate * (g[i] * scale + l2 * w[i]);
        return;
    }
    for (size_t i = 0; i < update->count; i++) {
        v[i] = momentum * v[i] - rate * (g[i] * scale + l2 * w[i]);
        w[i] += v[i];
    }
}

extern const gp_optim_rule gp_optim_sgdm;
const gp_optim_rule gp_optim_sgdm = { .name = "sgdm", .state_blobs = 1, .update = sgdm_update };
