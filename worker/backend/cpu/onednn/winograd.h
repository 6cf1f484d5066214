/* winograd.h -- 3x3 convolutions of stride 1 by Winograd's minimal filtering F(4x4, 3x3), for processors with AVX-512.
 * Private to onednn*.c.
 *
 * A tile of 4x4 outputs takes 36 products per pair of channels instead of 144:
 *     y = At [sum over c of (G w Gt) * (Bt x B)] A                * element by element, on 6x6 inputs
 * (Winograd, Arithmetic Complexity of Computations (1980); Lavin and Gray, Fast Algorithms for Convolutional Neural
 * Networks (2016)).  The gradient of the weights is the transposed algorithm:
 *     dw = Gt [sum over tiles of (A dy At) * (Bt x B)] G
 * and that of the inputs is a convolution with the weights turned by half a turn.  For each of the 36 positions the
 * products are one matrix product over channels (or, for the weights, over tiles).
 *
 * The points are 0, 5/8, -5/8, 3/2, -3/2 and infinity.  In float32 the relative error of a layer of 64 channels is then
 * 6e-7 (1.1e-6 of 512), of a direct sum 1e-7; with the usual 0, 1, -1, 2, -2 it is twice as large.  Everything between
 * the activations is float32, also where those are bfloat16: there the result is nearer than a direct sum's, which
 * rounds the weights too.
 *
 * Activations are [images][height][width][channels] of float32 or bfloat16 (`narrow`), weights [outputs][inputs][3][3]
 * of float32; numbers of channels are multiples of 16.  Results do not depend on the number of threads. */
#ifndef GP_WINOGRAD_H
#define GP_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_WINOGRAD_LANES = 16 };

typedef struct gp_winograd {
    size_t images, inputs, outputs;
    size_t height, width;         /* of an input image */
    size_t out_height, out_width; /* height + the padding before and after - 2 */
    size_t top, left;             /* padding before, 0 to 2 */
    bool
        turned; /* weights are those of the convolution that this one is the gradient of: [inputs][outputs][3][3] */
    bool narrow;
} gp_winograd;

/* What is done to the sums: y = cut(sum + bias + other). */
typedef struct gp_winograd_tail {
    const float *bias; /* [outputs], or NULL */
    const void *other; /* as y is, or NULL */
    bool bounded;
    float low, high;
} gp_winograd_tail;

/* The convolution that makes the gradient of w's inputs from that of its outputs. */
gp_winograd gp_winograd_turned(const gp_winograd *w);

/* Operands of a convolution or of its gradient. */
typedef struct gp_winograd_call {
    const gp_winograd *w;
    const void *x;
    float *room; /* scratch; see gp_winograd_forward_room() */
    /* gp_winograd_forward(): */
    const float *weight;
    gp_winograd_tail tail;
    void *y;
    /* gp_winograd_gradient(): */
    const void *dy;
    float *dweight, *dbias; /* dbias NULL: not computed */
    bool add;               /* to the gradients that are there */
} gp_winograd_call;

/* Return how many floats of room a call needs. */
size_t gp_winograd_forward_room(const gp_winograd *w, uint32_t threads);
size_t gp_winograd_gradient_room(const gp_winograd *w, uint32_t threads);

/* Compute y. */
void gp_winograd_forward(const gp_winograd_call *call, uint32_t threads);

/* Compute the gradients of the weights, block of tiles by block, and of the bias. */
void gp_winograd_gradient(const gp_winograd_call *call, uint32_t threads);

#endif
