/* The optimizers' update rules. */
#include <math.h>
#include <string.h>

#include "worker/backend/cpu/base/clones.h"
#include "worker/optim/optim.h"

/* Stochastic gradient descent with momentum, as in MATLAB's trainingOptions("sgdm"):
 *   v <- momentum * v - learn_rate * (gradient + l2 * w),   w <- w + v
 * The velocity includes the step's learning rate. With a constant rate the result equals PyTorch's
 * SGD. */
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

/* Adam (Kingma and Ba, 2015, algorithm 1) and AdamW (Loshchilov and Hutter, 2019, algorithm 2):
 *   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   w <- w - rate * m' / (sqrt(v') + epsilon)
 * m' and v' are bias-corrected: m and v start at zero. Adam adds the L2 term to g; AdamW subtracts
 * rate * l2 * w from the weight. Both match the PyTorch optimizers with the same names. */

/* `decoupled` is a constant in both callers, so the compiler generates two specialised loops. */
LOOP_INLINE void adam_loop(const gp_update *update, bool decoupled)
{
    const float *w = update->parameters, *m = update->state, *v = update->state + update->state_stride;
    const float *gradients = update->gradients;
    float *next_w = update->next_parameters, *next_m = update->next_state;
    float *next_v = update->next_state + update->next_stride;
    const float scale = update->gradient_scale, rate = update->learn_rate * update->correction;
    const float b1 = update->decay, b2 = update->squared_decay, epsilon = update->epsilon;
    const float root = update->squared_correction;
    const float in_gradient = decoupled ? 0.0f : update->l2;
    const float kept = decoupled ? 1.0f - update->learn_rate * update->l2 : 1.0f;

#pragma GCC ivdep
    for (size_t i = 0; i < update->count; i++) {
        const float g = gradients[i] * scale + in_gradient * w[i];
        const float mean = b1 * m[i] + (1.0f - b1) * g;
        const float square = b2 * v[i] + (1.0f - b2) * g * g;

        next_w[i] = kept * w[i] - rate * mean / (sqrtf(square * root) + epsilon);
        next_m[i] = mean;
        next_v[i] = square;
    }
}

LOOP_CLONES static void adam_update(const gp_update *update)
{
    adam_loop(update, false);
}

LOOP_CLONES static void adamw_update(const gp_update *update)
{
    adam_loop(update, true);
}

/* RMSProp (Tieleman and Hinton, 2012, lecture 6.5), as in MATLAB's trainingOptions("rmsprop") and
 * in PyTorch without momentum:
 *   v <- b v + (1 - b) g^2,   w <- w - rate * g / (sqrt(v) + epsilon),   g includes the L2 term */
LOOP_CLONES static void rmsprop_update(const gp_update *update)
{
    const float *w = update->parameters, *v = update->state, *gradients = update->gradients;
    float *next_w = update->next_parameters, *next_v = update->next_state;
    const float scale = update->gradient_scale, rate = update->learn_rate, l2 = update->l2;
    const float b = update->squared_decay, epsilon = update->epsilon;

#pragma GCC ivdep
    for (size_t i = 0; i < update->count; i++) {
        const float g = gradients[i] * scale + l2 * w[i];
        const float square = b * v[i] + (1.0f - b) * g * g;

        next_w[i] = w[i] - rate * g / (sqrtf(square) + epsilon);
        next_v[i] = square;
    }
}

/* Update rules, indexed by gp_solver. */
void (*const gp_optim_rules[])(const gp_update *update) = { sgdm_update, adam_update, adamw_update,
                                                            rmsprop_update };
