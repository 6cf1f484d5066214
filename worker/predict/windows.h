/* windows.h -- cut an image that exceeds the network's input size into overlapping windows, and
 * merge their scores.
 *
 *   windows        |------- 0 -------|
 *                           |------- 1 -------|
 *   overlap                 |  o o'  o' o  |
 *   weights of 0   1111111111111 1 \  0 0
 *   weights of 1               0 0 /  1 1111111
 *
 * Along each axis, the smallest window count with at least the required overlap is used, spread
 * evenly: the first window starts where the image starts, the last ends where the image ends. A
 * network sees zeros beyond a window's border where the image continues. So in an overlap each
 * window's outer quarter has weight 0, and over the middle half the weights change linearly from
 * one window to the other. The weights for a pixel sum to 1. If the network's receptive field is
 * less than a quarter of the overlap, the result equals that for the whole image. The method is the
 * overlap-tile strategy of Ronneberger et al. (U-Net, 2015), with gradual rather than abrupt
 * transitions. */
#ifndef GP_WINDOWS_H
#define GP_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Windows along one axis. */
typedef struct gp_window_axis {
    uint32_t length, size;    /* image length, window size */
    uint32_t count, capacity; /* window count; allocated windows */
    uint32_t *start;          /* [count] each window's first pixel */
    float *weight;            /* [count, size] weight of each window pixel; 0 beyond the image */
} gp_window_axis;

/* Set the axis for another image; zero-initialize *axis before the first call. An image smaller
 * than a window has one window, which starts at 0 and extends beyond the image.
 *   overlap  minimum overlap between neighbors in pixels; at most half a window
 * GP_EINVAL: the overlap exceeds half of size. GP_ENOMEM: out of memory. */
gp_status gp_window_axis_set(gp_window_axis *axis, uint32_t length, uint32_t size, uint32_t overlap,
                             gp_error *err);
void gp_window_axis_deinit(gp_window_axis *axis);

/* Copy window (row, column) from [channels, y->length, x->length] values of value_bytes each.
 * Pixels beyond the image repeat the image border. */
void gp_window_cut(void *out, const void *image, uint32_t channels, size_t value_bytes,
                   const gp_window_axis *y, const gp_window_axis *x, uint32_t row, uint32_t column);

/* Add the weighted scores of window (row, column), [channels, y->size, x->size], to map,
 * [channels, y->length, x->length]. The map must start as zero. */
void gp_window_add(float *map, const float *scores, uint32_t channels, const gp_window_axis *y,
                   const gp_window_axis *x, uint32_t row, uint32_t column);

#endif
