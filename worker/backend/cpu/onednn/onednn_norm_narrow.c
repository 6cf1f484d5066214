/* Batch norm, sums, clamps and masks for activations in bfloat16. bfloat16 is used only on CPUs
 * with AVX-512, for which the build compiles this whole file. */
#define NORM_NARROW
#include "worker/backend/cpu/onednn/onednn_norm.c"
