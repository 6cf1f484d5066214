/* zoo.c -- networks by name: chains as tables here, others built by zoo_nets.c. */
#include <stdio.h>
#include <string.h>

#include "common/base/spell.h"
#include "common/model/zoo.h"

typedef struct zoo_layer {
    const char *name, *kind, *settings; /* "outputs=%u": the number of classes */
} zoo_layer;

typedef struct zoo_network {
    const char *name;
    int64_t input[3];
    uint32_t classes;
    bool imagenet;           /* normalised by that data's means and deviations, where it has three channels */
    const zoo_layer *layers; /* of a chain; ended by .name == NULL */
    gp_status (*build)(gp_netspec *spec, int depth, uint32_t classes, gp_error *err);
    int depth;
} zoo_network;

/* "Dive into Deep Learning" 12.5, as trained there on several GPUs. */
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

/* "One weird trick for parallelizing convolutional neural networks" (Krizhevsky, 2014), as torchvision has it. */
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

#define IMAGENET { 3, 224, 224 }, 1000, true

static const zoo_network networks[] = {
    { "lenet", { 1, 28, 28 }, 10, false, .layers = lenet_layers },
    { "alexnet", IMAGENET, .layers = alexnet_layers },
    { "vgg16", IMAGENET, .layers = vgg16_layers },
    { "resnet18", IMAGENET, .build = gp_zoo_resnet, .depth = 18 },
    { "resnet34", IMAGENET, .build = gp_zoo_resnet, .depth = 34 },
    { "resnet50", IMAGENET, .build = gp_zoo_resnet, .depth = 50 },
    { "resnet101", IMAGENET, .build = gp_zoo_resnet, .depth = 101 },
    { "squeezenet1.1", IMAGENET, .build = gp_zoo_squeezenet },
    { "mobilenetv2", IMAGENET, .build = gp_zoo_mobilenetv2 },
};

enum { NETWORK_COUNT = sizeof(networks) / sizeof(networks[0]) };

const char *const gp_zoo_names[NETWORK_COUNT + 1] = { "lenet",       "alexnet",  "vgg16",     "resnet18",
                                                      "resnet34",    "resnet50", "resnet101", "squeezenet1.1",
                                                      "mobilenetv2", NULL };

static const zoo_network *zoo_find(const char *name, gp_error *err)
{
    const char *near = NULL;
    unsigned distance = 0;
    char known[256] = "";

    for (int i = 0; i < NETWORK_COUNT; i++) {
        size_t used = strlen(known);

        if (strcmp(networks[i].name, name) == 0)
            return &networks[i];
        gp_spell_offer(name, networks[i].name, &near, &distance);
        snprintf(known + used, sizeof(known) - used, "%s%s", i == 0 ? "" : ", ", networks[i].name);
    }
    if (near != NULL)
        gp_fail(err, GP_ENOENT, "no network is called '%s'; did you mean '%s'? (known: %s)", name, near,
                known);
    else
        gp_fail(err, GP_ENOENT, "no network is called '%s'; known: %s; or name a .json or .onnx file", name,
                known);
    return NULL;
}

/* Bytes to numbers about 0 and 1: by the means and deviations of ImageNet's channels, or just over 255. */
static gp_status zoo_normalize(const zoo_network *network, gp_netspec *spec, gp_error *err)
{
    static const double mean[] = { 0.485, 0.456, 0.406 }, deviation[] = { 0.229, 0.224, 0.225 };
    double scale[3] = { 1.0 / 255.0 }, offset[3] = { 0.0 };

    if (!network->imagenet || spec->input.dim[0] != 3)
        return gp_netspec_normalize(spec, scale, offset, 1, err);
    for (int i = 0; i < 3; i++) {
        scale[i] = 1.0 / (255.0 * deviation[i]);
        offset[i] = -mean[i] / deviation[i];
    }
    return gp_netspec_normalize(spec, scale, offset, 3, err);
}

gp_status gp_zoo_build(gp_netspec **out, const char *name, const gp_shape *input, uint32_t classes,
                       gp_error *err)
{
    const zoo_network *network = zoo_find(name, err);
    gp_netspec *spec;

    if (network == NULL)
        return GP_ENOENT;
    gp_shape own = gp_shape3(network->input[0], network->input[1], network->input[2]);
    gp_status status = gp_netspec_new(&spec, network->name, input == NULL ? &own : input, err);

    if (status != GP_OK)
        return status;
    if (classes == 0)
        classes = network->classes;
    status = zoo_normalize(network, spec, err);
    if (status == GP_OK && network->build != NULL)
        status = network->build(spec, network->depth, classes, err);
    for (const zoo_layer *layer = network->layers; layer != NULL && layer->name != NULL && status == GP_OK;
         layer++) {
        char last[32];
        const char *settings = layer->settings;

        if (settings != NULL && strcmp(settings, "outputs=%u") == 0) {
            snprintf(last, sizeof(last), "outputs=%u", classes);
            settings = last;
        }
        status = gp_netspec_add(spec, layer->name, layer->kind, settings, err);
    }
    if (status != GP_OK) {
        gp_netspec_free(spec);
        return status;
    }
    *out = spec;
    return GP_OK;
}
