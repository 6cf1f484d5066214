/* Implement network.h. */
#include "common/model/network.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "common/model/onnx/onnx.h"

enum { MODEL_BYTES_MAX = INT_MAX };

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);

    return a >= b && strcmp(text + a - b, end) == 0;
}

bool gp_network_is_file(const char *name)
{
    return strchr(name, '/') != NULL || ends_with(name, ".onnx") || ends_with(name, ".json");
}

/* Read an ONNX model. External data files are searched in the model's directory. */
static gp_status onnx_load(gp_network *network, const char *path, const uint8_t *data, size_t bytes,
                           gp_error *err)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    const gp_onnx_options options = { .folder = folder };

    if (slash != NULL && (size_t)(slash - path) + 2 > sizeof(folder))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", path);
    if (slash != NULL)
        snprintf(folder, sizeof(folder), "%.*s/", (int)(slash - path), path);
    return gp_onnx_read(&network->spec, &network->weights, &network->class_names, &network->class_count, data,
                        bytes, &options, err);
}

gp_status gp_network_load(gp_network *out, const char *name, const gp_shape *input, uint32_t classes,
                          gp_error *err)
{
    uint8_t *data;
    size_t bytes;
    gp_network network = { 0 };
    gp_status status;

    if (!gp_network_is_file(name)) {
        status = gp_zoo_check(name, err);
        if (status == GP_OK && input == NULL)
            status = gp_fail(err, GP_EINVAL,
                             "%s is a network without weights; use a trained model (FILE.onnx)", name);
        if (status == GP_OK)
            status = gp_zoo_build(&out->spec, name, input, classes, err);
        return status;
    }
    status = gp_file_read(&data, &bytes, name, MODEL_BYTES_MAX, err);
    if (status != GP_OK)
        return status;
    if (ends_with(name, ".json"))
        status = gp_netspec_from_json(&network.spec, (const char *)data, bytes, err);
    else
        status = onnx_load(&network, name, data, bytes, err);
    gp_free(data);
    if (status != GP_OK) {
        gp_error_prefix(err, "%s", name);
        return status;
    }
    *out = network;
    return GP_OK;
}

gp_status gp_network_read(gp_network *out, const void *data, size_t bytes, gp_error *err)
{
    const char *text = data;
    gp_network network = { 0 };
    gp_status status;
    size_t blank = 0;

    /* JSON starts with '{' after white space; anything else is treated as ONNX. */
    while (blank < bytes &&
           (text[blank] == ' ' || text[blank] == '\n' || text[blank] == '\t' || text[blank] == '\r'))
        blank++;
    if (blank < bytes && text[blank] == '{')
        status = gp_netspec_from_json(&network.spec, text, bytes, err);
    else
        status = gp_onnx_read(&network.spec, &network.weights, &network.class_names, &network.class_count,
                              data, bytes, NULL, err);
    if (status == GP_OK)
        *out = network;
    return status;
}

void gp_network_set_weights(gp_network *network, float *weights, size_t mapped_bytes)
{
    if (network->mapped_bytes != 0)
        munmap(network->weights, network->mapped_bytes);
    else
        gp_free(network->weights);
    network->weights = weights;
    network->mapped_bytes = mapped_bytes;
}

void gp_network_deinit(gp_network *network)
{
    gp_class_names_free(network->class_names, network->class_count);
    gp_netspec_free(network->spec);
    gp_network_set_weights(network, NULL, 0);
    *network = (gp_network){ 0 };
}

gp_status gp_network_set_classes(gp_network *network, const char *json, size_t bytes, gp_error *err)
{
    char **names;
    uint32_t count;
    gp_status status = gp_class_names_parse(&names, &count, json, bytes, err);

    if (status != GP_OK)
        return status;
    gp_class_names_free(network->class_names, network->class_count);
    network->class_names = names;
    network->class_count = count;
    return GP_OK;
}
