/* RMSProp (Tieleman and Hinton, 2012, lecture 6.5), as in MATLAB's trainingOptions("rmsprop") and
 * in PyTorch without momentum:
 *   v <- b v + (1 - b) g^2,   w <- w - rate * g / (sqrt(v) + epsilon),   g includes the L2 term */
#include <math.h>

#include "worker/backend/cpu/base/clones.h"
#include "worker/optim/optim.h"

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

extern const gp_optim_rule gp_optim_rmsprop;
const gp_optim_rule gp_optim_rmsprop = { .name = "rmsprop", .state_blobs = 1, .update = rmsprop_update };
