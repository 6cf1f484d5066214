/* The two inner loops of resample.c in plain C, AVX2 and AVX-512. All versions give the same
 * integers. */
#ifndef GP_RESAMPLE_ROWS_H
#define GP_RESAMPLE_ROWS_H

#include <stddef.h>
#include <stdint.h>

enum {
    GP_WEIGHT_BITS = 14, /* the weights for one position add up to 1 << GP_WEIGHT_BITS */
    GP_ROW_BITS = 7,     /* fractional bits between the two passes */
    GP_ROW_SPARE = 16,   /* readable values behind a row; they do not affect the result */
};

/* Filter for one axis. Output i is the sum over k < used of weight[i * taps + k] * input[first[i] +
 * k]. used and taps are even. A weight is 0 if first[i] + k is outside the window. */
typedef struct gp_axis {
    uint32_t to, taps, used;
    uint32_t *first;
    int16_t *weight;

    /* Weights replicated for AVX-512, for the horizontal axis. For each group of four positions and
     * each pair of weights, the array has four copies of the pair per position. It has (to / 4) *
     * (used / 2) * 16 pairs. */
    int32_t *fours;
} gp_axis;

/* Destination for one output row: value x of channel c goes to data[x * step + c * plane]. */
typedef struct gp_row_out {
    uint8_t *bytes; /* exactly one of bytes and floats is set */
    float *floats;
    size_t step, plane;
    const float *scale, *offset;
} gp_row_out;

/* Convert a weighted sum to a byte. The sum starts with one half, so truncation rounds it. */
static inline uint8_t gp_row_round(int32_t sum)
{
    return (uint8_t)(sum >> (GP_WEIGHT_BITS + GP_ROW_BITS));
}

/* Store value x of channel c, converted to float if the destination has floats. */
static inline void gp_row_put(const gp_row_out *out, uint32_t x, uint32_t c, uint8_t value)
{
    if (out->floats != NULL)
        out->floats[x * out->step + c * out->plane] = (float)value * out->scale[c] + out->offset[c];
    else
        out->bytes[x * out->step + c * out->plane] = value;
}

/* Advance to the next row. */
static inline void gp_row_move(gp_row_out *out, size_t values)
{
    if (out->floats != NULL)
        out->floats += values;
    else
        out->bytes += values;
}

/* An implementation of the inner loops. */
typedef struct gp_row_ops {
    /* Compute mixed[i] for i < count: the sum over k < taps of weight[k] * row[k * stride + i],
     * with GP_ROW_BITS fractional bits. taps is even; only the first `rows` rows are read. */
    void (*mix)(int16_t *mixed, const uint8_t *row, size_t stride, uint32_t rows, const int16_t *weight,
                size_t count);
    /* Scale a mixed row of interleaved RGB to the output width. */
    void (*narrow_rgb)(const gp_row_out *out, const gp_axis *axis, const int16_t *row);
} gp_row_ops;

/* Return the fastest version for this processor. gp_row_ops_all() lists all versions that it
 * supports, for tests, and returns their number. */
const gp_row_ops *gp_row_ops_find(void);
int gp_row_ops_all(const gp_row_ops *out[3]);

/* Fill in axis->fours, which must have room for to / 4 * (used / 2) * 16 pairs. */
void gp_axis_fours(gp_axis *axis);

extern const gp_row_ops gp_row_ops_plain;

#endif
