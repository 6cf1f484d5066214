/* onednn_norm_wide.c -- batch norm, sums, cuts and masks of float32 activations where gp_wide_usable(): this file is
 * compiled for AVX-512 as a whole. */
#define NORM_WIDE
#include "worker/backend/cpu/onednn/onednn_norm.c"
