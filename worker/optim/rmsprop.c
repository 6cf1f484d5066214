/* rmsprop.c -- RMSProp (Tieleman and Hinton, 2012, lecture 6.5), in the form of MATLAB's trainingOptions("rmsprop")
 * and of PyTorch without momentum:
 *   v <- b v + (1 - b) g^2,   w <- w - rate * g / (sqrt(v) + epsilon),   g with the L2 term */
#include <math.h>

#include "worker/optim/optim.h"

static void rmsprop_update(const gp_update *update)
{
    float *restrict w = update->parameters, *restrict v = update->state;
    const float *restrict gradients = update->gradients;
    const float scale = update->gradient_scale, rate = update->learn_rate, l2 = update->l2;
    const float b = update->squared_decay, epsilon = update->epsilon;

    for (size_t i = 0; i < update->count; i++) {
        const float g = gradients[i] * scale + l2 * w[i];

        v[i] = b * v[i] + (1.0f - b) * g * g;
        w[i] -= rate * g / (sqrtf(v[i]) + epsilon);
    }
}

extern const gp_optim_rule gp_optim_rmsprop;
const gp_optim_rule gp_optim_rmsprop = { .name = "rmsprop", .state_blobs = 1, .update = rmsprop_update };
