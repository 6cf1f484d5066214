/* Batch norm, sums, clamps and masks for float32 activations on CPUs where gp_wide_usable() is
 * true. The build compiles this whole file for AVX-512. */
#define NORM_WIDE
#include "worker/backend/cpu/onednn/onednn_norm.c"
