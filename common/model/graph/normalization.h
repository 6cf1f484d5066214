/* Pixel normalization: convert stored pixels to network input. --image-normalization accepts:
 *
 *   "0..1"      pixel / 255
 *   "0..255"    bytes unchanged
 *   "imagenet"  (pixel / 255 - mean) / std, with the ImageNet channel means and deviations
 *   "MEAN,STD"  (pixel / 255 - MEAN) / STD; each is one number, or one per channel with colons:
 *               "0.485:0.456:0.406,0.229:0.224:0.225" */
#ifndef GP_NORMALIZATION_H
#define GP_NORMALIZATION_H

#include "common/model/graph/netspec.h"

/* Buffer size for a formatted normalization, including the NUL. */
enum { GP_NORMALIZATION_TEXT = 2 * GP_NORMALIZE_MAX * 16 };

/* Set the normalization from text. GP_EINVAL: malformed, or the value count does not match the
 * channels. */
gp_status gp_normalization_set(gp_netspec *spec, const char *text, gp_error *err);

/* Apply --image-normalization to a loaded network.
 *   text     option value; NULL or "": no change
 *   trained  the network has weights; the stated normalization is then kept
 * GP_EINVAL: malformed, or a trained network states a different normalization. */
gp_status gp_normalization_apply(gp_netspec *spec, const char *text, bool trained, gp_error *err);

/* Format the normalization in the form that gp_normalization_set() reads. "unknown": the file does
 * not state it. Return text. */
char *gp_normalization_format(const gp_netspec *spec, char text[GP_NORMALIZATION_TEXT]);

/* Check that the network accepts samples from a data source. Byte samples require a known
 * normalization.
 *   sample  channels, height, width
 *   dtype   sample element type
 *   source  data source name, for messages
 * GP_EINVAL: the network does not accept them; the message says what to change. */
gp_status gp_netspec_check_samples(const gp_netspec *spec, const gp_shape *sample, gp_dtype dtype,
                                   const char *source, gp_error *err);

#endif
