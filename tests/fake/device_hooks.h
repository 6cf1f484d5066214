/* Functions that a test can define to change the host that stands in for a GPU (device.c). */
#ifndef GP_FAKE_DEVICE_HOOKS_H
#define GP_FAKE_DEVICE_HOOKS_H

#include "worker/backend/cuda/libraries/device.h"

/* Return whether the library has a plan for a convolution: GP_OK or GP_EUNSUPPORTED. Replaces the
 * rules of device.c. */
gp_status gp_fake_conv_ask(const gp_conv_request *request, gp_error *err) __attribute__((weak));

#endif
