/* adam.c -- Adam (Kingma and Ba, 2015, algorithm 1) and AdamW (Loshchilov and Hutter, 2019, algorithm 2):
 *   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   w <- w - rate * m' / (sqrt(v') + epsilon)
 * where m' and v' are m and v without the bias of their start at zero.  Adam has the L2 term in g; AdamW takes
 * rate * l2 * w off the weight instead.  As PyTorch's Adam and AdamW. */
#include <math.h>

#include "worker/optim/optim.h"

/* decoupled is a constant in each caller, so that two loops are compiled. */
static inline void adam_loop(const gp_update *update, bool decoupled)
{
    float *restrict w = update->parameters, *restrict m = update->state;
    float *restrict v = update->state + update->state_stride;
    const float *restrict gradients = update->gradients;
    const float scale = update->gradient_scale, rate = update->learn_rate * update->correction;
    const float b1 = update->decay, b2 = update->squared_decay, epsilon = update->epsilon;
    const float root = update->squared_correction;
    const float in_gradient = decoupled ? 0.0f : update->l2;
    const float kept = decoupled ? 1.0f - update->learn_rate * update->l2 : 1.0f;

    for (size_t i = 0; i < update->count; i++) {
        const float g = gradients[i] * scale + in_gradient * w[i];

        m[i] = b1 * m[i] + (1.0f - b1) * g;
        v[i] = b2 * v[i] + (1.0f - b2) * g * g;
        w[i] = kept * w[i] - rate * m[i] / (sqrtf(v[i] * root) + epsilon);
    }
}

static void adam_update(const gp_update *update)
{
    adam_loop(update, false);
}

static void adamw_update(const gp_update *update)
{
    adam_loop(update, true);
}

extern const gp_optim_rule gp_optim_adam, gp_optim_adamw;
const gp_optim_rule gp_optim_adam = { .name = "adam", .state_blobs = 2, .update = adam_update };
const gp_optim_rule gp_optim_adamw = { .name = "adamw", .state_blobs = 2, .update = adamw_update };
