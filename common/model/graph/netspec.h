/* Network description: layers, settings and input, without shapes or weights. Clients send it,
 * files contain it, and `model show` prints it.
 *
 * Layers are in topological order: each reads earlier layers or the network's input. The canonical
 * JSON form is sent over the network and is also the format of --network FILE.json:
 *   {"name": "lenet", "input": [1, 28, 28], "scale": [0.00392156862745098], "offset": [0],
 *    "layers": [{"name": "conv1", "kind": "conv2d", "inputs": ["input"], "channels": 20,
 *                "kernel": [3, 3]},
 *               ...]}
 * Optional members:
 *   scale_unknown  true: the file does not state how pixels are scaled
 *   inputs         per layer; default: the previous layer
 *   settings       per layer; values equal to the default are not written
 *   windows        [height, width]: trained on crops of images resized to this size
 *   fitted         true: trained on windows scaled to the input
 *   resized        true: images with other sizes were stretched to the input
 *
 * A network with several inputs packs them one after another into each sample. Instead of "input",
 * "scale" and "offset" it has
 *   "inputs": [{"name": "image", "shape": [3, 32, 32], "scale": 0.0039},
 *              {"name": "place", "shape": [4]}]
 * The parser turns this into one input with as many channels as there are numbers, and into layers
 * with these names that extract each part. */
#ifndef GP_NETSPEC_H
#define GP_NETSPEC_H

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/base/text/json.h"
#include "common/base/memory/tensor.h"
#include "common/model/graph/kind.h"

enum {
    GP_NAME_MAX = 64, /* bytes including the NUL */
    GP_LAYERS_MAX = 4096,
    GP_CHANNELS_MAX = 65536,
    GP_NETSPEC_BYTES_MAX = 4 << 20,
    GP_NORMALIZE_MAX = 16,      /* channels with separate scale and offset */
    GP_ENDS_MAX = 8,            /* losses in a network */
    GP_INPUTS_MAX = 8,          /* inputs packed into a sample */
    GP_WINDOW_IMAGE_MAX = 8192, /* height or width */
};
#define GP_INPUT_LAYER UINT32_MAX /* layer index that denotes the network's input */

/* Settings for every layer with parameters. Defaults as in MATLAB: 1, but 0 for bias L2. */
typedef struct gp_layer_factors {
    double weight_learn_rate, bias_learn_rate, weight_l2, bias_l2;
} gp_layer_factors;
extern const gp_param gp_layer_factors_table[]; /* "weight-learn-rate-factor", ... */

/* A layer of the network. */
typedef struct gp_layer {
    char name[GP_NAME_MAX];
    const gp_kind *kind;
    uint32_t input_count;
    uint32_t inputs[GP_LAYER_INPUTS_MAX]; /* layer indexes or GP_INPUT_LAYER */
    gp_layer_factors factors;
    /* settings struct defined by the kind */
    _Alignas(16) unsigned char settings[GP_LAYER_SETTINGS_BYTES];
} gp_layer;

/* Network description. */
typedef struct gp_netspec {
    char name[GP_NAME_MAX];
    gp_shape input;           /* [C, H, W] for one sample */
    uint32_t normalize_count; /* elements in scale and offset: 1, or one per channel; at most 16 */
    /* Normalization: network input = stored value * scale + offset. */
    double scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];

    /* The file comes from another program and does not state how pixels are scaled: scale 1 and
     * offset 0 are a guess. Byte samples are rejected until gp_netspec_normalize() sets both. */
    bool scale_unknown;

    /* Relation between training images and the network's input; prediction must reproduce it. At
     * most one of windows and fitted is set.
     *   windows  crops with the input's size, taken after resizing images to window_image
     *            (height, width; 0, 0: not resized)
     *   fitted   any-size windows with the input's proportions, scaled to the input; centered
     *            where the choice is not random
     *   resized  whole images, stretched to the input's size by --image-size
     *   none     images with the input's size; others are rejected unless an option handles them */
    bool windows, fitted, resized;
    uint32_t window_image[2];
    gp_layer *layers; /* owned, [layer_count] */
    uint32_t layer_count;
} gp_netspec;

/* Create a network without layers.
 *   name   1 to 63 printable ASCII characters
 *   input  [C, H, W] */
gp_status gp_netspec_new(gp_netspec **out, const char *name, const gp_shape *input, gp_error *err);
void gp_netspec_free(gp_netspec *spec);

/* Copy a network with all layers. */
gp_status gp_netspec_copy(gp_netspec **out, const gp_netspec *spec, gp_error *err);

/* Return whether the network accepts samples with this shape: the input's own shape or, for an
 * input K x 1 x 1, any shape with K numbers. */
bool gp_netspec_takes(const gp_netspec *spec, const gp_shape *sample);

/* Set the normalization: network input = stored value * scale + offset. Clears scale_unknown.
 *   count  elements in both arrays: 1 or the number of channels
 * GP_EINVAL: wrong count, a scale of 0, or a value that is not finite. */
gp_status gp_netspec_normalize(gp_netspec *spec, const double *scale, const double *offset, size_t count,
                               gp_error *err);

/* Append a layer that reads the previous layer, or the input if it is the first.
 *   settings  "channels=20;kernel=3,3"; NULL: defaults
 * GP_EINVAL: unknown kind or setting (the message suggests the nearest name), or the layer name is
 * taken or invalid. */
gp_status gp_netspec_add(gp_netspec *spec, const char *name, const char *kind, const char *settings,
                         gp_error *err);

/* Set one setting or factor from text. GP_EINVAL: unknown name (the message suggests the nearest
 * one) or invalid value. */
gp_status gp_layer_set(gp_layer *layer, const char *name, const char *value, gp_error *err);

/* Set one setting or factor from a JSON value. */
gp_status gp_layer_set_json(gp_layer *layer, const char *name, const gp_json *value, gp_error *err);

/* Replace the last layer's inputs by the named layers, or "input" for the network's input. */
gp_status gp_netspec_connect(gp_netspec *spec, const char *const *inputs, size_t count, gp_error *err);

/* Return the named layer's index. layer_count: not found. */
uint32_t gp_netspec_find(const gp_netspec *spec, const char *name);

/* Return the last layer at or before `layer` that computes new numbers, skipping those that only
 * reshape (GP_KIND_RESHAPES). GP_INPUT_LAYER: all these layers only reshape the input. */
uint32_t gp_netspec_before_reshapes(const gp_netspec *spec, uint32_t layer);

/* Return whether a layer outputs probabilities: the result of a softmax or sigmoid, possibly
 * reshaped. */
bool gp_netspec_gives_probabilities(const gp_netspec *spec, uint32_t layer);

/* Parse the JSON form. Unknown members are errors. */
gp_status gp_netspec_from_json(gp_netspec **out, const char *text, size_t bytes, gp_error *err);

/* Append the canonical JSON form: equal networks produce equal bytes. pretty: break lines and
 * indent. */
gp_status gp_netspec_to_json(const gp_netspec *spec, gp_buffer *buffer, bool pretty, gp_error *err);

/* Build a network from the zoo.
 *   text     name with optional settings: "lenet", "unet:depth=3,width=32"
 *   input    sample shape; NULL: the network's own
 *   classes  class count; 0: the network's own
 * GP_ENOENT: unknown name; the message suggests the nearest one or lists all. GP_EINVAL: invalid
 * setting; the message suggests the nearest name or states the range. */
gp_status gp_zoo_build(gp_netspec **out, const char *text, const gp_shape *input, uint32_t classes,
                       gp_error *err);

/* Check a name with settings, with the same errors as gp_zoo_build(), but build nothing. */
gp_status gp_zoo_check(const char *text, gp_error *err);

/* Zoo network description. */
typedef struct gp_zoo_info {
    const char *name, *about;
    gp_shape input;
    uint32_t classes;
    const gp_param *settings; /* terminated by { 0 }; may be empty */
} gp_zoo_info;

/* Describe zoo network `index`. false: index out of range. */
bool gp_zoo_describe(size_t index, gp_zoo_info *out);

#endif
