/* center_crop.h -- images as a training with a crop is validated on: brought to a size, and the middle taken. */
#ifndef GP_CENTER_CROP_H
#define GP_CENTER_CROP_H

#include "common/data/augment.h"
#include "common/data/store.h"

typedef struct gp_center_crop {
    bool on;
    gp_augment augment; /* nothing but the crop */
    gp_store_info out;  /* of a cropped sample */
    gp_augment_draw draw;
    uint32_t samples_max;
    void *samples, *targets; /* [samples_max], as they are stored */
} gp_center_crop;

/* gp_center_crop_images -- how images must be read.
 *   size   height and width that they are brought to; 0, 0: as the network takes them, and there is no crop
 *   input  the network's, [channels, height, width]
 * GP_EINVAL: a size below the network's. */
gp_status gp_center_crop_images(gp_center_crop *crop, gp_store_options *images, const uint32_t size[2],
                                const gp_shape *input, gp_error *err);

/* gp_center_crop_open -- what comes out of the store (crop->out), and memory for calls of samples_max. */
gp_status gp_center_crop_open(gp_center_crop *crop, const gp_store *store, uint32_t samples_max,
                              gp_error *err);

/* gp_store_read() with the crop; targets may be NULL. */
gp_status gp_center_crop_read(const gp_center_crop *crop, const gp_store *store, const uint32_t *index,
                              uint32_t count, void *samples, void *targets, gp_error *err);
void gp_center_crop_deinit(gp_center_crop *crop);

#endif
