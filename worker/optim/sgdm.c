/* sgdm.c -- stochastic gradient descent with momentum, in the form of MATLAB's trainingOptions("sgdm"):
 *   v <- momentum * v - learn_rate * (gradient + l2 * w),   w <- w + v
 * so the learning rate of a step stays in the velocity; with a constant rate it equals PyTorch's SGD. */
#include "worker/optim/optim.h"

#include <string.h>

#include "worker/backend/cpu/base/clones.h"

LOOP_CLONES static void sgdm_update(const gp_update *update)
{
    const float *w = update->parameters, *v = update->state, *g = update->gradients;
    float *next_w = update->next_parameters, *next_v = update->next_state;
    const float scale = update->gradient_scale, rate = update->learn_rate, momentum = update->momentum;
    const float l2 = update->l2;

    if (momentum == 0.0f) { /* the velocity is not carried: one blob less through the cache */
        if (next_v != v)
            memcpy(next_v, v, update->count * sizeof(*v));
#pragma GCC ivdep
        for (size_t i = 0; i < update->count; i++)
            next_w[i] = w[i] - rate * (g[i] * scale + l2 * w[i]);
        return;
    }
#pragma GCC ivdep
    for (size_t i = 0; i < update->count; i++) {
        const float velocity = momentum * v[i] - rate * (g[i] * scale + l2 * w[i]);

        next_w[i] = w[i] + velocity;
        next_v[i] = velocity;
    }
}

extern const gp_optim_rule gp_optim_sgdm;
const gp_optim_rule gp_optim_sgdm = { .name = "sgdm", .state_blobs = 1, .update = sgdm_update };
