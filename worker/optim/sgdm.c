/* Stochastic gradient descent with momentum, as in MATLAB's trainingOptions("sgdm"):
 *   v <- momentum * v - learn_rate * (gradient + l2 * w),   w <- w + v
 * The velocity includes the learning rate of its step. With a constant rate the result equals
 * PyTorch's SGD. */
#include "worker/optim/optim.h"

#include <string.h>

#include "worker/backend/cpu/base/clones.h"

LOOP_CLONES static void sgdm_update(const gp_update *update)
{
    const float *w = update->parameters, *v = update->state, *g = update->gradients;
    float *next_w = update->next_parameters, *next_v = update->next_state;
    const float scale = update->gradient_scale, rate = update->learn_rate, momentum = update->momentum;
    const float l2 = update->l2;

    /* Without momentum the velocity is unused; skipping it saves memory bandwidth. */
    if (momentum == 0.0f) {
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
