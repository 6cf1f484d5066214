/* onednn_norm_narrow.c -- batch norm, sums, cuts and masks of activations in bfloat16. */
#define NORM_NARROW
#include "worker/backend/cpu/onednn_norm.c"
