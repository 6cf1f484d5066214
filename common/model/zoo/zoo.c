/* Look up and build networks by name. Simple chains are tables in this file; zoo_*.c build all
 * other networks.
 *
 * A name can be followed by settings: "deeplabv3plus:backbone=resnet50,output-stride=8". */
#include <stdio.h>
#include <string.h>

#include "common/base/text/spell.h"
#include "common/model/zoo/zoo.h"

/* A layer in a chain. */
typedef struct zoo_layer {
    const char *name, *kind, *settings; /* "outputs=%u" is replaced by the class count */
} zoo_layer;

/* Normalization of stored bytes, for inputs with three channels. */
typedef enum zoo_range {
    RANGE_BYTE,     /* divided by 255 */
    RANGE_IMAGENET, /* ImageNet channel means and deviations */
    RANGE_CENTRED,  /* mapped to [-1, 1] */
} zoo_range;

/* A network in the zoo: either a chain (layers) or a builder function (build). */
typedef struct zoo_network {
    const char *name, *about;
    int64_t input[3];
    uint32_t classes;
    zoo_range range;
    const zoo_layer *layers; /* chain, terminated by .name == NULL */
    void (*build)(gp_zoo_builder *b);
    int depth;                /* passed to build() */
    const gp_param *settings; /* NULL: none */
} zoo_network;

/* "Dive into Deep Learning" 12.5, the variant trained there on several GPUs. */
static const zoo_layer lenet_layers[] = {
    { "conv1", "conv2d", "channels=20;kernel=3" },
    { "relu1", "relu", NULL },
    { "pool1", "avgpool", "kernel=2" },
    { "conv2", "conv2d", "channels=50;kernel=5" },
    { "relu2", "relu", NULL },
    { "pool2", "avgpool", "kernel=2" },
    { "fc1", "fc", "outputs=128" },
    { "relu3", "relu", NULL },
    { "fc2", "fc", "outputs=%u" },
    { "loss", "crossentropy", NULL },
    { NULL, NULL, NULL },
};

/* "One weird trick for parallelizing convolutional neural networks" (Krizhevsky, 2014), as in
 * torchvision. */
static const zoo_layer alexnet_layers[] = {
    { "conv1", "conv2d", "channels=64;kernel=11;stride=4;padding=2" },
    { "relu1", "relu", NULL },
    { "pool1", "maxpool", "kernel=3;stride=2" },
    { "conv2", "conv2d", "channels=192;kernel=5;padding=2" },
    { "relu2", "relu", NULL },
    { "pool2", "maxpool", "kernel=3;stride=2" },
    { "conv3", "conv2d", "channels=384;kernel=3;padding=1" },
    { "relu3", "relu", NULL },
    { "conv4", "conv2d", "channels=256;kernel=3;padding=1" },
    { "relu4", "relu", NULL },
    { "conv5", "conv2d", "channels=256;kernel=3;padding=1" },
    { "relu5", "relu", NULL },
    { "pool5", "maxpool", "kernel=3;stride=2" },
    { "drop6", "dropout", NULL },
    { "fc6", "fc", "outputs=4096" },
    { "relu6", "relu", NULL },
    { "drop7", "dropout", NULL },
    { "fc7", "fc", "outputs=4096" },
    { "relu7", "relu", NULL },
    { "fc8", "fc", "outputs=%u" },
    { "loss", "crossentropy", NULL },
    { NULL, NULL, NULL },
};

/* Convolution with ReLU, and pooling, as VGG uses them. */
#define VGG_CONV(number, channels)                                                                           \
    { "conv" number, "conv2d", "channels=" channels ";kernel=3;padding=1" },                                 \
    {                                                                                                        \
        "relu" number, "relu", NULL                                                                          \
    }
#define VGG_POOL(number)                                                                                     \
    {                                                                                                        \
        "pool" number, "maxpool", "kernel=2"                                                                 \
    }

/* Simonyan & Zisserman, ICLR 2015: configuration D. */
static const zoo_layer vgg16_layers[] = {
    VGG_CONV("1_1", "64"),
    VGG_CONV("1_2", "64"),
    VGG_POOL("1"),
    VGG_CONV("2_1", "128"),
    VGG_CONV("2_2", "128"),
    VGG_POOL("2"),
    VGG_CONV("3_1", "256"),
    VGG_CONV("3_2", "256"),
    VGG_CONV("3_3", "256"),
    VGG_POOL("3"),
    VGG_CONV("4_1", "512"),
    VGG_CONV("4_2", "512"),
    VGG_CONV("4_3", "512"),
    VGG_POOL("4"),
    VGG_CONV("5_1", "512"),
    VGG_CONV("5_2", "512"),
    VGG_CONV("5_3", "512"),
    VGG_POOL("5"),
    { "fc6", "fc", "outputs=4096" },
    { "relu6", "relu", NULL },
    { "drop6", "dropout", NULL },
    { "fc7", "fc", "outputs=4096" },
    { "relu7", "relu", NULL },
    { "drop7", "dropout", NULL },
    { "fc8", "fc", "outputs=%u" },
    { "loss", "crossentropy", NULL },
    { NULL, NULL, NULL },
};

/* Fields common to ImageNet classifiers. */
#define IMAGENET .input = { 3, 224, 224 }, .classes = 1000, .range = RANGE_IMAGENET
#define RESNET(n)                                                                                            \
    .name = "resnet" #n, .about = "He et al., 2016", IMAGENET, .build = gp_zoo_resnet, .depth = n

static const zoo_network networks[] = {
    { .name = "lenet",
      .about = "Dive into Deep Learning, 12.5",
      .input = { 1, 28, 28 },
      .classes = 10,
      .layers = lenet_layers },
    { .name = "alexnet", .about = "Krizhevsky, 2014", IMAGENET, .layers = alexnet_layers },
    { .name = "vgg16", .about = "Simonyan & Zisserman, 2015", IMAGENET, .layers = vgg16_layers },
    { RESNET(18) },
    { RESNET(34) },
    { RESNET(50) },
    { RESNET(101) },
    { .name = "squeezenet1.1", .about = "Iandola et al., 2016", IMAGENET, .build = gp_zoo_squeezenet },
    { .name = "mobilenetv2", .about = "Sandler et al., 2018", IMAGENET, .build = gp_zoo_mobilenetv2 },
    { .name = "googlenet",
      .about = "Szegedy et al., 2015",
      IMAGENET,
      .build = gp_zoo_googlenet,
      .settings = gp_zoo_googlenet_settings },
    { .name = "inceptionresnetv2",
      .about = "Szegedy et al., 2017",
      .input = { 3, 299, 299 },
      .classes = 1000,
      .range = RANGE_CENTRED,
      .build = gp_zoo_inceptionresnetv2 },
    { .name = "deeplabv3plus",
      .about = "Chen et al., 2018: scores each pixel",
      .input = { 3, 512, 512 },
      .classes = 21,
      .range = RANGE_IMAGENET,
      .build = gp_zoo_deeplabv3plus,
      .settings = gp_zoo_deeplabv3plus_settings },
    { .name = "unet",
      .about = "Ronneberger et al., 2015: scores each pixel",
      .input = { 3, 256, 256 },
      .classes = 2,
      .build = gp_zoo_unet,
      .settings = gp_zoo_unet_settings },
};

enum { NETWORK_COUNT = sizeof(networks) / sizeof(networks[0]), NAME_BYTES = 64, SETTING_BYTES = 80 };

static const gp_param no_settings[] = { { 0 } };

bool gp_zoo_describe(size_t index, gp_zoo_info *out)
{
    if (index >= NETWORK_COUNT)
        return false;
    const zoo_network *network = &networks[index];

    *out = (gp_zoo_info){ .name = network->name,
                          .about = network->about,
                          .input = gp_shape3(network->input[0], network->input[1], network->input[2]),
                          .classes = network->classes,
                          .settings = network->settings != NULL ? network->settings : no_settings };
    return true;
}

/* Find the network named by the text before ':'. NULL: *err suggests the nearest name or lists
 * all. */
static const zoo_network *zoo_find(const char *text, gp_error *err)
{
    const char *near = NULL;
    unsigned distance = 0;
    char name[NAME_BYTES], known[160] = "";

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, ":"), text);
    for (int i = 0; i < NETWORK_COUNT; i++) {
        size_t used = strlen(known);

        if (strcmp(networks[i].name, name) == 0)
            return &networks[i];
        gp_spell_offer(name, networks[i].name, &near, &distance);
        snprintf(known + used, sizeof(known) - used, "%s%s", i == 0 ? "" : ", ", networks[i].name);
    }
    if (near != NULL)
        gp_fail(err, GP_ENOENT,
                "no network is called '%s'; did you mean '%s'? (or name a .json or .onnx file)", name, near);
    else
        gp_fail(err, GP_ENOENT, "no network is called '%s'; there is %s; or name a .json or .onnx file", name,
                known);
    return NULL;
}

/* Fail with a message that suggests the nearest setting or lists all. */
static gp_status setting_unknown(const zoo_network *network, const char *name, gp_error *err)
{
    const char *near = NULL;
    unsigned distance = 0;
    char known[160] = "";

    if (network->settings == NULL)
        return gp_fail(err, GP_EINVAL, "%s has no settings, and '%s' is given", network->name, name);
    for (const gp_param *param = network->settings; param->type != GP_PARAM_NONE; param++) {
        size_t used = strlen(known);

        gp_spell_offer(name, param->name, &near, &distance);
        snprintf(known + used, sizeof(known) - used, "%s%s", used == 0 ? "" : ", ", param->name);
    }
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "%s has no setting '%s'; did you mean '%s'?", network->name, name,
                       near);
    return gp_fail(err, GP_EINVAL, "%s has no setting '%s'; it has: %s", network->name, name, known);
}

/* Parse settings into the network's struct, after setting the defaults.
 *   text    ":a=b,c=d" or ""
 *   values  GP_ZOO_SETTINGS_BYTES bytes */
static gp_status settings_parse(const zoo_network *network, const char *text, void *values, gp_error *err)
{
    char setting[SETTING_BYTES];
    gp_status status = GP_OK;

    if (network->settings != NULL)
        gp_params_default(network->settings, values);
    while (status == GP_OK && *text != '\0') {
        size_t bytes = strcspn(++text, ",");

        if (bytes >= sizeof(setting))
            return gp_fail(err, GP_ELIMIT, "a setting of %zu bytes; at most %zu", bytes, sizeof(setting) - 1);
        memcpy(setting, text, bytes);
        setting[bytes] = '\0';
        text += bytes;
        char *value = strchr(setting, '=');

        if (value == NULL)
            return gp_fail(err, GP_EINVAL,
                           "'%s' is not of the form setting=value; write %s:setting=value,...", setting,
                           network->name);
        *value++ = '\0';
        const gp_param *param = network->settings == NULL ? NULL : gp_params_find(network->settings, setting);

        status =
            param == NULL ? setting_unknown(network, setting, err) : gp_params_set(param, values, value, err);
    }
    return status;
}

gp_status gp_zoo_check(const char *text, gp_error *err)
{
    const zoo_network *network = zoo_find(text, err);
    _Alignas(16) unsigned char values[GP_ZOO_SETTINGS_BYTES];

    return network == NULL ? GP_ENOENT : settings_parse(network, text + strlen(network->name), values, err);
}

/* Set the input normalization. Inputs without three channels are divided by 255. */
static gp_status zoo_normalize(const zoo_network *network, gp_netspec *spec, gp_error *err)
{
    static const double mean[] = { 0.485, 0.456, 0.406 }, deviation[] = { 0.229, 0.224, 0.225 };
    double scale[3] = { 1.0 / 255.0 }, offset[3] = { 0.0 };

    if (network->range == RANGE_BYTE || spec->input.dim[0] != 3)
        return gp_netspec_normalize(spec, scale, offset, 1, err);
    for (int i = 0; i < 3; i++) {
        const bool centred = network->range == RANGE_CENTRED;

        scale[i] = centred ? 2.0 / 255.0 : 1.0 / (255.0 * deviation[i]);
        offset[i] = centred ? -1.0 : -mean[i] / deviation[i];
    }
    return gp_netspec_normalize(spec, scale, offset, 3, err);
}

/* Append all layers of a chain. */
static gp_status chain_build(const zoo_layer *layer, gp_netspec *spec, uint32_t classes, gp_error *err)
{
    gp_status status = GP_OK;

    for (; layer->name != NULL && status == GP_OK; layer++) {
        char last[32];
        const char *settings = layer->settings;

        if (settings != NULL && strcmp(settings, "outputs=%u") == 0) {
            snprintf(last, sizeof(last), "outputs=%u", classes);
            settings = last;
        }
        status = gp_netspec_add(spec, layer->name, layer->kind, settings, err);
    }
    return status;
}

gp_status gp_zoo_build(gp_netspec **out, const char *text, const gp_shape *input, uint32_t classes,
                       gp_error *err)
{
    const zoo_network *network = zoo_find(text, err);
    _Alignas(16) unsigned char settings[GP_ZOO_SETTINGS_BYTES];
    gp_netspec *spec;

    if (network == NULL)
        return GP_ENOENT;
    gp_shape own = gp_shape3(network->input[0], network->input[1], network->input[2]);
    gp_status status = settings_parse(network, text + strlen(network->name), settings, err);

    if (status == GP_OK)
        status = gp_netspec_new(&spec, network->name, input == NULL ? &own : input, err);
    if (status != GP_OK)
        return status;
    if (classes == 0)
        classes = network->classes;
    status = zoo_normalize(network, spec, err);
    if (status == GP_OK && network->build != NULL) {
        gp_zoo_builder builder = {
            .spec = spec, .classes = classes, .depth = network->depth, .settings = settings, .err = err
        };

        network->build(&builder);
        status = builder.status;
    } else if (status == GP_OK) {
        status = chain_build(network->layers, spec, classes, err);
    }
    if (status != GP_OK) {
        gp_netspec_free(spec);
        return status;
    }
    *out = spec;
    return GP_OK;
}
