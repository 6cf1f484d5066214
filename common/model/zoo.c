/* zoo.c -- networks by name. */
#include <stdio.h>
#include <string.h>

#include "common/base/spell.h"
#include "common/model/netspec.h"

typedef struct zoo_layer {
    const char *name, *kind, *settings; /* "outputs=%u": the number of classes */
} zoo_layer;

typedef struct zoo_network {
    const char *name;
    int64_t input[3];
    uint32_t classes;
    double scale;
    const zoo_layer *layers; /* ended by .name == NULL */
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

static const zoo_network networks[] = {
    { "lenet", { 1, 28, 28 }, 10, 1.0 / 255.0, lenet_layers },
};

enum { NETWORK_COUNT = sizeof(networks) / sizeof(networks[0]) };

const char *const gp_zoo_names[NETWORK_COUNT + 1] = { "lenet", NULL };

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

gp_status gp_zoo_build(gp_netspec **out, const char *name, const gp_shape *input, uint32_t classes,
                       gp_error *err)
{
    const zoo_network *network = zoo_find(name, err);
    gp_netspec *spec;

    if (network == NULL)
        return GP_ENOENT;
    gp_shape own = gp_shape3(network->input[0], network->input[1], network->input[2]);
    const double offset = 0.0;
    gp_status status = gp_netspec_new(&spec, network->name, input == NULL ? &own : input, err);

    if (status != GP_OK)
        return status;
    status = gp_netspec_normalize(spec, &network->scale, &offset, 1, err);
    for (const zoo_layer *layer = network->layers; layer->name != NULL && status == GP_OK; layer++) {
        char last[32];
        const char *settings = layer->settings;

        if (settings != NULL && strcmp(settings, "outputs=%u") == 0) {
            snprintf(last, sizeof(last), "outputs=%u", classes == 0 ? network->classes : classes);
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
