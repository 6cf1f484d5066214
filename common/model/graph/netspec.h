/* netspec.h -- a network as data: what a client ships, a file holds and `net show` prints.
 *
 * Layers stand in topological order: each reads layers before it or the network's input.  The canonical
 * JSON is the wire form and the form of --network FILE.json:
 *   {"name": "lenet", "input": [1, 28, 28], "scale": [0.00392156862745098], "offset": [0],
 *    "layers": [{"name": "conv1", "kind": "conv2d", "inputs": ["input"], "channels": 20, "kernel": [3, 3]},
 *               ...]}
 * "scale_unknown": true marks a network from a file that does not say how pixels are scaled.
 * "inputs" may be left out: the layer before.  Settings equal to their default are not written.  "windows": [height, width]
 * says that it was trained on parts of images, "fitted": true that it was on windows scaled to its input, "resized": true
 * that images of other sizes were stretched to its input.
 *
 * A network of several inputs reads them out of one sample, packed one behind the other; in place of "input", "scale" and
 * "offset" it may have
 *   "inputs": [{"name": "image", "shape": [3, 32, 32], "scale": 0.0039}, {"name": "place", "shape": [4]}]
 * which becomes an input of as many channels as there are numbers, and layers of these names that take them out. */
#ifndef GP_NETSPEC_H
#define GP_NETSPEC_H

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/base/text/json.h"
#include "common/base/memory/tensor.h"
#include "common/model/graph/kind.h"

enum {
    GP_NAME_MAX = 64, /* bytes with the NUL */
    GP_LAYERS_MAX = 4096,
    GP_CHANNELS_MAX = 65536,
    GP_NETSPEC_BYTES_MAX = 4 << 20,
    GP_NORMALIZE_MAX = 16,
    GP_ENDS_MAX = 8,   /* losses of a network */
    GP_INPUTS_MAX = 8, /* inputs packed into a sample */
    GP_WINDOW_IMAGE_MAX = 8192,
};
#define GP_INPUT_LAYER UINT32_MAX /* as an input: the network's own input */

/* Settings that every layer with parameters has.  Defaults are MATLAB's: 1, but 0 for the biases' L2. */
typedef struct gp_layer_factors {
    double weight_learn_rate, bias_learn_rate, weight_l2, bias_l2;
} gp_layer_factors;
extern const gp_param gp_layer_factors_table[]; /* "weight-learn-rate-factor", ... */

typedef struct gp_layer {
    char name[GP_NAME_MAX];
    const gp_kind *kind;
    uint32_t input_count;
    uint32_t inputs[GP_LAYER_INPUTS_MAX]; /* layer indices or GP_INPUT_LAYER */
    gp_layer_factors factors;
    _Alignas(16) unsigned char settings[GP_LAYER_SETTINGS_BYTES]; /* the kind's struct */
} gp_layer;

typedef struct gp_netspec {
    char name[GP_NAME_MAX];
    gp_shape input;           /* [C, H, W] of one sample */
    uint32_t normalize_count; /* 1, or one per channel; at most 16 */
    double scale[GP_NORMALIZE_MAX],
        offset[GP_NORMALIZE_MAX]; /* network input = stored value * scale + offset */

    /* The file came from another program and does not say how pixels are scaled: scale 1 and offset 0
     * are a guess. Byte samples are refused until gp_netspec_normalize() sets both. */
    bool scale_unknown;
    /* What of images it saw in training, and has to see in prediction; no layer knows of it.
     * windows: parts of the input's size, after the images were brought to window_image, height and width; 0, 0: as they are.
     * fitted: windows of any size with the input's proportions, scaled to it; in the middle where nothing is left to chance.
     * resized: all of the image, stretched to the input's size by --image-size.
     * None: images of the input's size; others are refused unless an option says what to do with them. */
    bool windows, fitted, resized;
    uint32_t window_image[2];
    gp_layer *layers; /* owned */
    uint32_t layer_count;
} gp_netspec;

gp_status gp_netspec_new(gp_netspec **out, const char *name, const gp_shape *input, gp_error *err);
void gp_netspec_free(gp_netspec *spec);
gp_status gp_netspec_copy(gp_netspec **out, const gp_netspec *spec, gp_error *err);

/* Whether samples of that shape fit: the input's own, or of an input K x 1 x 1 any of K numbers. */
bool gp_netspec_takes(const gp_netspec *spec, const gp_shape *sample);

/* Set the normalization: network input = stored value * scale + offset. count is 1 or the number of channels, and no
 * scale is 0. Clears scale_unknown. */
gp_status gp_netspec_normalize(gp_netspec *spec, const double *scale, const double *offset, size_t count,
                               gp_error *err);

/* Append a layer that reads the layer before it (or the input, when first).  settings: "channels=20;kernel=3,3"
 * or NULL.  GP_EINVAL: unknown kind or setting (with the nearest name), name taken or not printable. */
gp_status gp_netspec_add(gp_netspec *spec, const char *name, const char *kind, const char *settings,
                         gp_error *err);

/* Set one setting or factor of a layer from text; an unknown one is GP_EINVAL with the nearest name. */
gp_status gp_layer_set(gp_layer *layer, const char *name, const char *value, gp_error *err);

/* The same from JSON. */
gp_status gp_layer_set_json(gp_layer *layer, const char *name, const gp_json *value, gp_error *err);

/* Let the last layer read these layers (or "input"), by name. */
gp_status gp_netspec_connect(gp_netspec *spec, const char *const *inputs, size_t count, gp_error *err);

/* The layer of that name; layer_count when there is none. */
uint32_t gp_netspec_find(const gp_netspec *spec, const char *name);

/* Return the last layer at or before `layer` that computes new numbers, skipping those that only reshape (GP_KIND_RESHAPES);
 * GP_INPUT_LAYER: the network's input. */
uint32_t gp_netspec_before_reshapes(const gp_netspec *spec, uint32_t layer);

/* Return whether the output of `layer` consists of probabilities: of a softmax or sigmoid, possibly reshaped. */
bool gp_netspec_gives_probabilities(const gp_netspec *spec, uint32_t layer);

gp_status gp_netspec_from_json(gp_netspec **out, const char *text, size_t bytes, gp_error *err);
/* Appends canonical JSON: equal networks give equal bytes. */
gp_status gp_netspec_to_json(const gp_netspec *spec, gp_buffer *buffer, bool pretty, gp_error *err);

/* A network of the zoo by name, with settings of its own or without ("lenet", "unet:depth=3,width=32"), for that input
 * and number of classes (NULL, 0 = the network's own).
 * GP_ENOENT: unknown, with the nearest name or the list.  GP_EINVAL: a setting, with the nearest or its range. */
gp_status gp_zoo_build(gp_netspec **out, const char *text, const gp_shape *input, uint32_t classes,
                       gp_error *err);

/* What gp_zoo_build() would say of the name and settings alone. */
gp_status gp_zoo_check(const char *text, gp_error *err);

typedef struct gp_zoo_info {
    const char *name, *about;
    gp_shape input;
    uint32_t classes;
    const gp_param *settings; /* { 0 }-ended; may be empty */
} gp_zoo_info;

/* Network `index` of the zoo; false beyond the last. */
bool gp_zoo_describe(size_t index, gp_zoo_info *out);

#endif
