/* 3x3 convolutions with stride 1 by Winograd's minimal filtering F(4x4, 3x3), for CPUs with
 * AVX-512. Private to onednn*.c.
 *
 * A tile of 4x4 outputs takes 36 products per pair of channels rather than 144:
 *     y = At [sum over c of (G w Gt) * (Bt x B)] A                * is element-wise, on 6x6 inputs
 * (Winograd, Arithmetic Complexity of Computations (1980); Lavin and Gray, Fast Algorithms for
 * Convolutional Neural Networks (2016)). The weight gradient is the transposed algorithm:
 *     dw = Gt [sum over tiles of (A dy At) * (Bt x B)] G
 * The input gradient is a convolution with weights rotated by 180 degrees. For each of the 36
 * positions, the products form one matrix product over channels (for weight gradients, over tiles).
 *
 * The interpolation points are 0, 5/8, -5/8, 3/2, -3/2 and infinity. In float32, the relative error
 * of a layer with 64 channels is 6e-7 (512 channels: 1.1e-6); direct summation has 1e-7, and the
 * usual points 0, 1, -1, 2, -2 have twice the error. All intermediate values are float32 even if
 * activations are bfloat16; the result is then more accurate than direct convolution, which also
 * rounds the weights.
 *
 * Activations are [images][height][width][channels] in float32 or bfloat16 (`narrow`), weights
 * [outputs][inputs][3][3] in float32. Channel counts are multiples of 16. Results do not depend on
 * the thread count. */
#ifndef GP_WINOGRAD_H
#define GP_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_WINOGRAD_LANES = 16 };

/* Convolution shape. */
typedef struct gp_winograd {
    size_t images, inputs, outputs;
    size_t height, width;         /* input image size */
    size_t out_height, out_width; /* height and width + padding on both sides - 2 */
    size_t top, left;             /* padding before the image, 0 to 2 */
    /* this convolution computes an input gradient: the weights are [inputs][outputs][3][3] and
     * rotated */
    bool turned;
    bool narrow;
} gp_winograd;

/* Operations on the result: y = clamp(sum + bias + other). */
typedef struct gp_winograd_tail {
    const float *bias; /* [outputs]; NULL: none */
    const void *other; /* same layout as y; NULL: none */
    bool bounded;
    float low, high;
} gp_winograd_tail;

/* Return the convolution that computes the input gradient from w's output gradient. */
gp_winograd gp_winograd_turned(const gp_winograd *w);

/* Operands for a convolution or a convolution gradient. */
typedef struct gp_winograd_call {
    const gp_winograd *w;
    const void *x;
    float *room; /* scratch memory, see gp_winograd_forward_room() */
    /* for gp_winograd_forward(): */
    const float *weight;
    gp_winograd_tail tail;
    void *y;
    /* for gp_winograd_gradient(): */
    const void *dy;
    float *dweight, *dbias; /* dbias NULL: not computed */
    bool add;               /* add to the existing gradients */
} gp_winograd_call;

/* Return the `room` size in floats. */
size_t gp_winograd_forward_room(const gp_winograd *w, uint32_t threads);
size_t gp_winograd_gradient_room(const gp_winograd *w, uint32_t threads);

/* Compute y. */

/* Compute y. */
void gp_winograd_forward(const gp_winograd_call *call, uint32_t threads);

/* Compute the weight and bias gradients, one tile block after the other. */
void gp_winograd_gradient(const gp_winograd_call *call, uint32_t threads);

#endif
