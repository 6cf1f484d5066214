/* Adam (Kingma and Ba, 2015, algorithm 1) and AdamW (Loshchilov and Hutter, 2019, algorithm 2):
 *   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   w <- w - rate * m' / (sqrt(v') + epsilon)
 * m' and v' are bias-corrected: m and v start at zero. Adam adds the L2 term to g; AdamW subtracts
 * rate * l2 * w from the weight. Both match the PyTorch optimizers with the same names. */
#include <math.h>

#include "worker/backend/cpu/base/clones.h"
#include "worker/optim/optim.h"

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

extern const gp_optim_rule gp_optim_adam, gp_optim_adamw;
const gp_optim_rule gp_optim_adam = { .name = "adam", .state_blobs = 2, .update = adam_update };
const gp_optim_rule gp_optim_adamw = { .name = "adamw", .state_blobs = 2, .update = adamw_update };
