/* netspec_json.c -- a network from and to canonical JSON (netspec.h shows the form). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/spell.h"
#include "common/model/netspec.h"

/* jansson gives UTF-8 that may hold any byte but NUL; an error shows at most this much of it. */
#define SHOWN "%.64s"

static gp_status key_check(void *context, const char *key, const gp_json *value, gp_error *err)
{
    static const char *const keys[] = { "name", "input", "scale", "offset", "layers" };
    const char *near = NULL;
    unsigned distance = 0;

    (void)context;
    (void)value;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(keys[i], key) == 0)
            return GP_OK;
        gp_spell_offer(key, keys[i], &near, &distance);
    }
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "a network has no '" SHOWN "'; did you mean '%s'?", key, near);
    return gp_fail(err, GP_EINVAL,
                   "a network has no '" SHOWN "'; it has name, input, scale, offset and layers", key);
}

static gp_status read_shape(gp_shape *out, const gp_json *value, gp_error *err)
{
    if (!gp_json_is_array(value) || gp_json_count(value) != 3)
        return gp_fail(err, GP_EINVAL,
                       "\"input\" must be a list of 3 whole numbers: channels, height, width");
    out->rank = 3;
    for (size_t i = 0; i < 3; i++)
        out->dim[i] = gp_json_integer(gp_json_element(value, i), -1);
    return GP_OK;
}

/* One number, or a list of them; *count stays 0 when the member is missing. */
static gp_status read_numbers(double *out, size_t *count, const gp_json *document, const char *key,
                              gp_error *err)
{
    const gp_json *value = gp_json_member(document, key);

    *count = 0;
    if (value == NULL)
        return GP_OK;
    if (gp_json_is_number(value)) {
        out[(*count)++] = gp_json_number(value, NAN);
        return GP_OK;
    }
    if (!gp_json_is_array(value) || gp_json_count(value) == 0 || gp_json_count(value) > GP_NORMALIZE_MAX)
        return gp_fail(err, GP_EINVAL, "\"%s\" must be a number or a list of 1 to %d numbers", key,
                       GP_NORMALIZE_MAX);
    for (size_t i = 0; i < gp_json_count(value); i++) {
        if (!gp_json_is_number(gp_json_element(value, i)))
            return gp_fail(err, GP_EINVAL, "element %zu of \"%s\" is not a number", i + 1, key);
        out[(*count)++] = gp_json_number(gp_json_element(value, i), NAN);
    }
    return GP_OK;
}

static gp_status read_normalization(gp_netspec *spec, const gp_json *document, gp_error *err)
{
    double scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];
    size_t scales, offsets;
    gp_status status = read_numbers(scale, &scales, document, "scale", err);

    if (status == GP_OK)
        status = read_numbers(offset, &offsets, document, "offset", err);
    if (status != GP_OK)
        return status;
    if (scales != 0 && offsets != 0 && scales != offsets)
        return gp_fail(err, GP_EINVAL, "\"scale\" has %zu numbers and \"offset\" %zu; give as many of both",
                       scales, offsets);
    size_t count = scales > offsets ? scales : offsets;

    for (size_t i = scales; i < count; i++)
        scale[i] = 1.0;
    for (size_t i = offsets; i < count; i++)
        offset[i] = 0.0;
    return count == 0 ? GP_OK : gp_netspec_normalize(spec, scale, offset, count, err);
}

static gp_status read_inputs(gp_netspec *spec, const gp_json *value, gp_error *err)
{
    const char *names[GP_LAYER_INPUTS_MAX];
    size_t count = gp_json_is_array(value) ? gp_json_count(value) : 0;

    if (count == 0 || count > GP_LAYER_INPUTS_MAX)
        return gp_fail(err, GP_EINVAL, "%s: \"inputs\" must be a list of 1 to %d names of layers before it",
                       spec->layers[spec->layer_count - 1].name, GP_LAYER_INPUTS_MAX);
    for (size_t i = 0; i < count; i++) {
        names[i] = gp_json_text(gp_json_element(value, i), NULL);
        if (names[i] == NULL)
            return gp_fail(err, GP_EINVAL, "%s: element %zu of \"inputs\" is not a name",
                           spec->layers[spec->layer_count - 1].name, i + 1);
    }
    return gp_netspec_connect(spec, names, count, err);
}

static gp_status read_member(void *context, const char *key, const gp_json *value, gp_error *err)
{
    gp_netspec *spec = context;
    gp_layer *layer = &spec->layers[spec->layer_count - 1];

    if (strcmp(key, "name") == 0 || strcmp(key, "kind") == 0)
        return GP_OK;
    if (strcmp(key, "inputs") == 0)
        return read_inputs(spec, value, err);
    gp_status status = gp_layer_set_json(layer, key, value, err);

    if (status != GP_OK)
        gp_error_prefix(err, "%s (%s)", layer->name, layer->kind->name);
    return status;
}

static gp_status read_layer(gp_netspec *spec, const gp_json *value, gp_error *err)
{
    const char *name = gp_json_text(gp_json_member(value, "name"), NULL);
    const char *kind = gp_json_text(gp_json_member(value, "kind"), NULL);

    if (!gp_json_is_object(value) || name == NULL || kind == NULL)
        return gp_fail(err, GP_EINVAL, "layer %" PRIu32 " is not an object with a \"name\" and a \"kind\"",
                       spec->layer_count + 1);
    gp_status status = gp_netspec_add(spec, name, kind, NULL, err);

    return status == GP_OK ? gp_json_each(value, read_member, spec, err) : status;
}

static gp_status read_network(gp_netspec **out, const gp_json *document, gp_error *err)
{
    const gp_json *layers = gp_json_member(document, "layers");
    gp_netspec *spec;
    gp_shape input = { 0 };

    if (!gp_json_is_object(document))
        return gp_fail(err, GP_EINVAL, "a network is a JSON object with \"input\" and \"layers\"");
    gp_status status = gp_json_each(document, key_check, NULL, err);

    if (status == GP_OK)
        status = read_shape(&input, gp_json_member(document, "input"), err);
    if (status != GP_OK)
        return status;
    if (!gp_json_is_array(layers))
        return gp_fail(err, GP_EINVAL, "\"layers\" must be a list of layers");
    if (gp_json_member(document, "name") != NULL && !gp_json_is_text(gp_json_member(document, "name")))
        return gp_fail(err, GP_EINVAL, "\"name\" must be a text");
    status = gp_netspec_new(&spec, gp_json_text(gp_json_member(document, "name"), "network"), &input, err);
    if (status != GP_OK)
        return status;
    status = read_normalization(spec, document, err);
    for (size_t i = 0; i < gp_json_count(layers) && status == GP_OK; i++)
        status = read_layer(spec, gp_json_element(layers, i), err);
    if (status != GP_OK) {
        gp_netspec_free(spec);
        return status;
    }
    *out = spec;
    return GP_OK;
}

gp_status gp_netspec_from_json(gp_netspec **out, const char *text, size_t bytes, gp_error *err)
{
    gp_json *document;

    if (bytes > GP_NETSPEC_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "a network of %zu bytes of JSON; at most %d", bytes,
                       GP_NETSPEC_BYTES_MAX);
    gp_status status = gp_json_parse(&document, text, bytes, err);

    if (status != GP_OK)
        return status;
    status = read_network(out, document, err);
    gp_json_free(document);
    return status;
}

static void write_numbers(gp_json_writer *writer, const char *key, const double *numbers, uint32_t count)
{
    gp_json_one_line(writer);
    gp_json_begin_array(writer, key);
    for (uint32_t i = 0; i < count; i++)
        gp_json_put_number(writer, NULL, numbers[i]);
    gp_json_end_array(writer);
}

static void write_layer(gp_json_writer *writer, const gp_netspec *spec, uint32_t index)
{
    const gp_layer *layer = &spec->layers[index];

    gp_json_one_line(writer);
    gp_json_begin_object(writer, NULL);
    gp_json_put_text(writer, "name", layer->name);
    gp_json_put_text(writer, "kind", layer->kind->name);
    if (layer->input_count != 1 || layer->inputs[0] != index - 1) { /* index 0: 0 - 1 is GP_INPUT_LAYER */
        gp_json_begin_array(writer, "inputs");
        for (uint32_t k = 0; k < layer->input_count; k++)
            gp_json_put_text(writer, NULL,
                             layer->inputs[k] == GP_INPUT_LAYER ? "input"
                                                                : spec->layers[layer->inputs[k]].name);
        gp_json_end_array(writer);
    }
    gp_params_to_json(layer->kind->settings_table, layer->settings, true, writer);
    gp_params_to_json(gp_layer_factors_table, &layer->factors, true, writer);
    gp_json_end_object(writer);
}

gp_status gp_netspec_to_json(const gp_netspec *spec, gp_buffer *buffer, bool pretty, gp_error *err)
{
    gp_json_writer writer;

    gp_json_writer_init(&writer, buffer, pretty);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_text(&writer, "name", spec->name);
    gp_json_one_line(&writer);
    gp_json_begin_array(&writer, "input");
    for (uint32_t i = 0; i < spec->input.rank; i++)
        gp_json_put_integer(&writer, NULL, spec->input.dim[i]);
    gp_json_end_array(&writer);
    write_numbers(&writer, "scale", spec->scale, spec->normalize_count);
    write_numbers(&writer, "offset", spec->offset, spec->normalize_count);
    gp_json_begin_array(&writer, "layers");
    for (uint32_t i = 0; i < spec->layer_count; i++)
        write_layer(&writer, spec, i);
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    return gp_json_writer_finish(&writer, err);
}
