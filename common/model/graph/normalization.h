/* normalization.h -- how pixels become network input: the values of --image-normalization.
 *
 *   "0..1"      pixel / 255
 *   "0..255"    the bytes as they are
 *   "imagenet"  (pixel / 255 - mean) / std, with the three means and deviations of ImageNet
 *   "MEAN,STD"  (pixel / 255 - MEAN) / STD; each is one number, or one per channel with colons:
 *               "0.485:0.456:0.406,0.229:0.224:0.225" */
#ifndef GP_NORMALIZATION_H
#define GP_NORMALIZATION_H

#include "common/model/graph/netspec.h"

/* Bytes of a formatted normalization, with the NUL. */
enum { GP_NORMALIZATION_TEXT = 2 * GP_NORMALIZE_MAX * 16 };

/* Set the normalization from text. GP_EINVAL: malformed, or not one value per channel. */
gp_status gp_normalization_set(gp_netspec *spec, const char *text, gp_error *err);

/* Apply --image-normalization to a loaded network. NULL or "" changes nothing. A trained network that states its
 * normalization keeps it.
 *   trained  the network has weights
 * GP_EINVAL: malformed, or a trained network states another normalization. */
gp_status gp_normalization_apply(gp_netspec *spec, const char *text, bool trained, gp_error *err);

/* Format the normalization as gp_normalization_set() reads it; "unknown" if the file does not state it. Returns text. */
char *gp_normalization_format(const gp_netspec *spec, char text[GP_NORMALIZATION_TEXT]);

/* Check that the network takes the samples of a source: their shape, and for bytes that the network states its
 * normalization.
 *   sample  channels, height, width
 * GP_EINVAL: it does not; the message says which side to change. */
gp_status gp_netspec_check_samples(const gp_netspec *spec, const gp_shape *sample, gp_dtype dtype,
                                   const char *source, gp_error *err);

#endif
