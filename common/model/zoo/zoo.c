/* Look up and build networks by name. Simple chains are in this file; zoo_*.c build all other
 * networks.
 *
 * A name can be followed by settings: "deeplabv3plus:backbone=resnet50,output-stride=8". */
#include <stdio.h>
#include <string.h>

#include "common/base/text/spell.h"
#include "common/model/graph/normalization.h"
#include "common/model/zoo/zoo.h"

/* A network in the zoo. */
typedef struct zoo_network {
    const char *name, *about;
    int64_t input[3];
    uint32_t classes;
    const char *normalization; /* of stored bytes, for inputs with three channels; NULL: "0..1" */
    void (*build)(gp_zoo_builder *b);
    int depth;                /* passed to build() */
    const gp_param *settings; /* NULL: none */
} zoo_network;

/* "Dive into Deep Learning" 12.5, the variant trained there on several GPUs. */
static void lenet(gp_zoo_builder *b)
{
    gp_zoo_add(b, NULL, "conv1", "conv2d", "channels=20;kernel=3");
    gp_zoo_add(b, NULL, "relu1", "relu", "%s", "");
    gp_zoo_add(b, NULL, "pool1", "avgpool", "kernel=2");
    gp_zoo_add(b, NULL, "conv2", "conv2d", "channels=50;kernel=5");
    gp_zoo_add(b, NULL, "relu2", "relu", "%s", "");
    gp_zoo_add(b, NULL, "pool2", "avgpool", "kernel=2");
    gp_zoo_add(b, NULL, "fc1", "fc", "outputs=128");
    gp_zoo_add(b, NULL, "relu3", "relu", "%s", "");
    gp_zoo_add(b, NULL, "fc2", "fc", "outputs=%u", b->classes);
    gp_zoo_add(b, NULL, "loss", "crossentropy", "%s", "");
}

/* "One weird trick for parallelizing convolutional neural networks" (Krizhevsky, 2014), as in
 * torchvision. */
static void alexnet(gp_zoo_builder *b)
{
    gp_zoo_add(b, NULL, "conv1", "conv2d", "channels=64;kernel=11;stride=4;padding=2");
    gp_zoo_add(b, NULL, "relu1", "relu", "%s", "");
    gp_zoo_add(b, NULL, "pool1", "maxpool", "kernel=3;stride=2");
    gp_zoo_add(b, NULL, "conv2", "conv2d", "channels=192;kernel=5;padding=2");
    gp_zoo_add(b, NULL, "relu2", "relu", "%s", "");
    gp_zoo_add(b, NULL, "pool2", "maxpool", "kernel=3;stride=2");
    gp_zoo_add(b, NULL, "conv3", "conv2d", "channels=384;kernel=3;padding=1");
    gp_zoo_add(b, NULL, "relu3", "relu", "%s", "");
    gp_zoo_add(b, NULL, "conv4", "conv2d", "channels=256;kernel=3;padding=1");
    gp_zoo_add(b, NULL, "relu4", "relu", "%s", "");
    gp_zoo_add(b, NULL, "conv5", "conv2d", "channels=256;kernel=3;padding=1");
    gp_zoo_add(b, NULL, "relu5", "relu", "%s", "");
    gp_zoo_add(b, NULL, "pool5", "maxpool", "kernel=3;stride=2");
    gp_zoo_add(b, NULL, "drop6", "dropout", "%s", "");
    gp_zoo_add(b, NULL, "fc6", "fc", "outputs=4096");
    gp_zoo_add(b, NULL, "relu6", "relu", "%s", "");
    gp_zoo_add(b, NULL, "drop7", "dropout", "%s", "");
    gp_zoo_add(b, NULL, "fc7", "fc", "outputs=4096");
    gp_zoo_add(b, NULL, "relu7", "relu", "%s", "");
    gp_zoo_add(b, NULL, "fc8", "fc", "outputs=%u", b->classes);
    gp_zoo_add(b, NULL, "loss", "crossentropy", "%s", "");
}

/* Simonyan & Zisserman, ICLR 2015: configuration D. */
static void vgg16(gp_zoo_builder *b)
{
    char name[GP_NAME_MAX];

    for (int stage = 1; stage <= 5; stage++) {
        for (int i = 1; i <= (stage <= 2 ? 2 : 3); i++) {
            snprintf(name, sizeof(name), "conv%d_%d", stage, i);
            gp_zoo_add(b, NULL, name, "conv2d", "channels=%d;kernel=3;padding=1",
                       stage == 5 ? 512 : 32 << stage);
            snprintf(name, sizeof(name), "relu%d_%d", stage, i);
            gp_zoo_add(b, NULL, name, "relu", "%s", "");
        }
        snprintf(name, sizeof(name), "pool%d", stage);
        gp_zoo_add(b, NULL, name, "maxpool", "kernel=2");
    }
    gp_zoo_add(b, NULL, "fc6", "fc", "outputs=4096");
    gp_zoo_add(b, NULL, "relu6", "relu", "%s", "");
    gp_zoo_add(b, NULL, "drop6", "dropout", "%s", "");
    gp_zoo_add(b, NULL, "fc7", "fc", "outputs=4096");
    gp_zoo_add(b, NULL, "relu7", "relu", "%s", "");
    gp_zoo_add(b, NULL, "drop7", "dropout", "%s", "");
    gp_zoo_add(b, NULL, "fc8", "fc", "outputs=%u", b->classes);
    gp_zoo_add(b, NULL, "loss", "crossentropy", "%s", "");
}

/* Fields common to ImageNet classifiers. */
#define IMAGENET .input = { 3, 224, 224 }, .classes = 1000, .normalization = "imagenet"
#define RESNET(n)                                                                                            \
    .name = "resnet" #n, .about = "He et al., 2016", IMAGENET, .build = gp_zoo_resnet, .depth = n

static const zoo_network networks[] = {
    { .name = "lenet",
      .about = "Dive into Deep Learning, 12.5",
      .input = { 1, 28, 28 },
      .classes = 10,
      .build = lenet },
    { .name = "alexnet", .about = "Krizhevsky, 2014", IMAGENET, .build = alexnet },
    { .name = "vgg16", .about = "Simonyan & Zisserman, 2015", IMAGENET, .build = vgg16 },
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
      .normalization = "0.5:0.5:0.5,0.5:0.5:0.5",
      .build = gp_zoo_inceptionresnetv2 },
    { .name = "deeplabv3plus",
      .about = "Chen et al., 2018: predicts each pixel",
      .input = { 3, 512, 512 },
      .classes = 21,
      .normalization = "imagenet",
      .build = gp_zoo_deeplabv3plus,
      .settings = gp_zoo_deeplabv3plus_settings },
    { .name = "unet",
      .about = "Ronneberger et al., 2015: predicts each pixel",
      .input = { 3, 256, 256 },
      .classes = 2,
      .build = gp_zoo_unet,
      .settings = gp_zoo_unet_settings },
};

enum { NETWORK_COUNT = sizeof(networks) / sizeof(networks[0]), NAME_BYTES = 64, SETTING_BYTES = 80 };

bool gp_zoo_describe(size_t index, gp_zoo_info *out)
{
    if (index >= NETWORK_COUNT)
        return false;
    const zoo_network *network = &networks[index];

    *out = (gp_zoo_info){ .name = network->name,
                          .about = network->about,
                          .input = gp_shape3(network->input[0], network->input[1], network->input[2]),
                          .classes = network->classes,
                          .settings = network->settings != NULL ? network->settings : gp_no_params };
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
        gp_fail(err, GP_ENOENT, "unknown network '%s'; did you mean '%s'? (or pass a .json or .onnx file)",
                name, near);
    else
        gp_fail(err, GP_ENOENT, "unknown network '%s'; available: %s; or pass a .json or .onnx file", name,
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
        return gp_fail(err, GP_EINVAL, "%s has no settings, but '%s' is set", network->name, name);
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
            return gp_fail(err, GP_ELIMIT, "a setting has %zu bytes, at most %zu are supported", bytes,
                           sizeof(setting) - 1);
        memcpy(setting, text, bytes);
        setting[bytes] = '\0';
        text += bytes;
        char *value = strchr(setting, '=');

        if (value == NULL)
            return gp_fail(err, GP_EINVAL, "'%s' must be setting=value; write %s:setting=value,...", setting,
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
    status = gp_normalization_set(
        spec, network->normalization == NULL || spec->input.dim[0] != 3 ? "0..1" : network->normalization,
        err);
    gp_zoo_builder builder = { .spec = spec,
                               .classes = classes == 0 ? network->classes : classes,
                               .depth = network->depth,
                               .settings = settings,
                               .status = status,
                               .err = err };

    network->build(&builder);
    if (builder.status != GP_OK) {
        gp_netspec_free(spec);
        return builder.status;
    }
    *out = spec;
    return GP_OK;
}
