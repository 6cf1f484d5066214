/* onednn_norm_narrow.c -- batch norm, sums, cuts and masks of activations in bfloat16.  Where those are used there is
 * AVX-512, for which this file is compiled as a whole. */
#define NORM_NARROW
#include "worker/backend/cpu/onednn/onednn_norm.c"
