/* resample_rows.h -- the two inner loops of resample.c, in plain C, AVX2 and AVX-512; the results are the same integers. */
#ifndef GP_RESAMPLE_ROWS_H
#define GP_RESAMPLE_ROWS_H

#include <stddef.h>
#include <stdint.h>

enum {
    GP_WEIGHT_BITS = 14, /* weights of a place add up to 1 << GP_WEIGHT_BITS */
    GP_ROW_BITS = 7,     /* behind the point, between the two passes */
    GP_ROW_SPARE = 16,   /* values behind a row that may be read (and count nothing) */
};

/* One axis: output i is the sum of weight[i * taps + k] * input[first[i] + k], k < used; used and taps are even.  A
 * weight is 0 where first[i] + k is not in the window. */
typedef struct gp_axis {
    uint32_t to, taps, used;
    uint32_t *first;
    int16_t *weight;
    /* The same for AVX-512, of an axis that rows are narrowed along: of each four places and each two weights four times
     * those two, a place after the other: (to / 4) * (used / 2) * 16 pairs. */
    int32_t *fours;
} gp_axis;

/* Where a row of the output goes: value x of channel c to data[x * step + c * plane]. */
typedef struct gp_row_out {
    uint8_t *bytes; /* one of the two */
    float *floats;
    size_t step, plane;
    const float *scale, *offset;
} gp_row_out;

static inline uint8_t gp_row_round(int32_t sum)
{
    return (uint8_t)(sum >> (GP_WEIGHT_BITS + GP_ROW_BITS));
}

static inline void gp_row_put(const gp_row_out *out, uint32_t x, uint32_t c, uint8_t value)
{
    if (out->floats != NULL)
        out->floats[x * out->step + c * out->plane] = (float)value * out->scale[c] + out->offset[c];
    else
        out->bytes[x * out->step + c * out->plane] = value;
}

/* To the next row. */
static inline void gp_row_move(gp_row_out *out, size_t values)
{
    if (out->floats != NULL)
        out->floats += values;
    else
        out->bytes += values;
}

typedef struct gp_row_ops {
    /* mixed[i] = the sum over k < taps of weight[k] * row[k * stride + i], i < count, with GP_ROW_BITS.  taps is even; only
     * the first `rows` rows are read. */
    void (*mix)(int16_t *mixed, const uint8_t *row, size_t stride, uint32_t rows, const int16_t *weight,
                size_t count);
    /* A mixed row of interleaved RGB to the output's width. */
    void (*narrow_rgb)(const gp_row_out *out, const gp_axis *axis, const int16_t *row);
} gp_row_ops;

/* The best for this processor, or the plain ones; all that it can run, for tests: the count. */
const gp_row_ops *gp_row_ops_find(void);
int gp_row_ops_all(const gp_row_ops *out[3]);

/* Fill in axis->fours, which has room for to / 4 * (used / 2) * 16. */
void gp_axis_fours(gp_axis *axis);

extern const gp_row_ops gp_row_ops_plain;

#endif
