/* windows.h -- an image larger than a network's input, cut into overlapping windows and put together again.
 *
 *   windows      |------- 0 -------|
 *                           |------- 1 -------|
 *   overlap                 |  o o'  o' o  |
 *   counts of 0  1111111111111 1 \  0 0
 *   counts of 1               0 0 /  1 1111111
 *
 * Along each side the fewest windows are taken that overlap by at least `overlap`, spread evenly: the first begins where the
 * image does, the last ends where it ends.  A window's border sees zeros where the image goes on, so in an overlap the outer
 * quarter of each window counts nothing, and over the half between one fades into the other; what a pixel's windows
 * count is 1 together.  So a network whose answer depends on less than a quarter of the overlap gives in windows what it
 * would give of the whole image.  The fading is that of tiled prediction in Ronneberger et al. (U-Net, 2015), whose tiles touch,
 * made soft. */
#ifndef GP_WINDOWS_H
#define GP_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* The windows along one side. */
typedef struct gp_window_axis {
    uint32_t length, size;    /* of the image, of a window */
    uint32_t count, capacity; /* windows */
    uint32_t *start;          /* [count] */
    float *weight;            /* [count, size]: what a window's pixel counts; beyond the image 0 */
} gp_window_axis;

/* gp_window_axis_set -- for another image; all zero before the first.
 *   overlap  at least so many pixels of neighbours; at most half a window
 * An image smaller than a window has one, which begins at 0 and hangs over.
 * GP_EINVAL: overlap is more than half of size.  GP_ENOMEM. */
gp_status gp_window_axis_set(gp_window_axis *axis, uint32_t length, uint32_t size, uint32_t overlap,
                             gp_error *err);
void gp_window_axis_deinit(gp_window_axis *axis);

/* Window (row, column) out of [channels, y->length, x->length] values of value_bytes each; beyond the image its border
 * goes on. */
void gp_window_cut(void *out, const void *image, uint32_t channels, size_t value_bytes,
                   const gp_window_axis *y, const gp_window_axis *x, uint32_t row, uint32_t column);

/* Add what window (row, column) says, [channels, y->size, x->size], to [channels, y->length, x->length], zero at first. */
void gp_window_add(float *map, const float *scores, uint32_t channels, const gp_window_axis *y,
                   const gp_window_axis *x, uint32_t row, uint32_t column);

#endif
