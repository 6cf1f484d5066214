/* Read and write a network's canonical JSON form, described in netspec.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text/json.h"
#include "common/base/text/spell.h"
#include "common/model/graph/netspec.h"

/* Error messages show at most this much of a string: jansson accepts any length and any byte except
 * NUL. */
#define SHOWN "%.64s"

/* Reject unknown network members; callback for gp_json_each(). */
static gp_status key_check(void *context, const char *key, const gp_json *value, gp_error *err)
{
    static const char *const keys[] = { "name",          "input",   "inputs", "scale",   "offset",
                                        "scale_unknown", "windows", "fitted", "resized", "layers" };
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
        return gp_fail(err, GP_EINVAL, "unknown member '" SHOWN "'; did you mean '%s'?", key, near);
    return gp_fail(err, GP_EINVAL,
                   "unknown member '" SHOWN
                   "'; a network can have name, input (or inputs), scale, offset, windows and layers",
                   key);
}

/* Read a number or a number list. *count is 0 if the member is missing. */
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

/* Read "scale", "offset" and "scale_unknown". */
static gp_status read_normalization(gp_netspec *spec, const gp_json *document, gp_error *err)
{
    const gp_json *unknown = gp_json_member(document, "scale_unknown");
    double scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];
    size_t scales, offsets;
    gp_status status = read_numbers(scale, &scales, document, "scale", err);

    if (status == GP_OK)
        status = read_numbers(offset, &offsets, document, "offset", err);
    if (status != GP_OK)
        return status;
    if (scales != 0 && offsets != 0 && scales != offsets)
        return gp_fail(err, GP_EINVAL,
                       "\"scale\" has %zu numbers, but \"offset\" has %zu; both must have the same count",
                       scales, offsets);
    size_t count = scales > offsets ? scales : offsets;

    for (size_t i = scales; i < count; i++)
        scale[i] = 1.0;
    for (size_t i = offsets; i < count; i++)
        offset[i] = 0.0;
    if (unknown != NULL && !gp_json_is_bool(unknown))
        return gp_fail(err, GP_EINVAL, "\"scale_unknown\" must be true or false");
    status = count == 0 ? GP_OK : gp_netspec_normalize(spec, scale, offset, count, err);
    spec->scale_unknown = gp_json_bool(unknown, false);
    return status;
}

/* Read the last layer's "inputs". */
static gp_status read_inputs(gp_netspec *spec, const gp_json *value, gp_error *err)
{
    const char *names[GP_LAYER_INPUTS_MAX];
    size_t count = gp_json_is_array(value) ? gp_json_count(value) : 0;

    if (count == 0 || count > GP_LAYER_INPUTS_MAX)
        return gp_fail(err, GP_EINVAL, "%s: \"inputs\" must be a list of 1 to %d names of earlier layers",
                       spec->layers[spec->layer_count - 1].name, GP_LAYER_INPUTS_MAX);
    for (size_t i = 0; i < count; i++) {
        names[i] = gp_json_text(gp_json_element(value, i), NULL);
        if (names[i] == NULL)
            return gp_fail(err, GP_EINVAL, "%s: element %zu of \"inputs\" is not a name",
                           spec->layers[spec->layer_count - 1].name, i + 1);
    }
    return gp_netspec_connect(spec, names, count, err);
}

/* Read one layer member; callback for gp_json_each(). */
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

/* ---- packed inputs ---- */

/* One element in the network's "inputs". */
typedef struct packed_input {
    const char *name;
    gp_shape shape;
    double scale;
} packed_input;

/* Reject unknown input members; callback for gp_json_each(). */
static gp_status packed_key_check(void *context, const char *key, const gp_json *value, gp_error *err)
{
    (void)value;
    if (strcmp(key, "name") == 0 || strcmp(key, "shape") == 0 || strcmp(key, "scale") == 0)
        return GP_OK;
    return gp_fail(err, GP_EINVAL,
                   "element %zu of \"inputs\" has the unknown member '" SHOWN
                   "'; must be name, shape or scale",
                   *(size_t *)context + 1, key);
}

static gp_status packed_read(packed_input *out, const gp_json *value, size_t index, gp_error *err)
{
    const gp_json *shape = gp_json_member(value, "shape"), *scale = gp_json_member(value, "scale");
    const size_t rank = gp_json_is_array(shape) ? gp_json_count(shape) : 0;
    gp_status status;

    out->name = gp_json_text(gp_json_member(value, "name"), NULL);
    if (!gp_json_is_object(value) || out->name == NULL || (rank != 1 && rank != 3) ||
        (scale != NULL && !gp_json_is_number(scale)))
        return gp_fail(err, GP_EINVAL,
                       "element %zu of \"inputs\" must be an object with \"name\", \"shape\" (1 or 3 "
                       "numbers) and optionally \"scale\"",
                       index + 1);
    status = gp_json_each(value, packed_key_check, &index, err);
    out->scale = scale == NULL ? 1.0 : gp_json_number(scale, 1.0);
    out->shape = (gp_shape){ .rank = (uint32_t)rank };
    for (size_t i = 0; i < rank && status == GP_OK; i++) {
        out->shape.dim[i] = gp_json_integer(gp_json_element(shape, i), -1);
        if (out->shape.dim[i] < 1 || out->shape.dim[i] > INT32_MAX)
            status = gp_fail(err, GP_EINVAL,
                             "the shape of input '" SHOWN "' is not of whole numbers from 1 on", out->name);
    }
    return status == GP_OK ? gp_shape_check(&out->shape, INT32_MAX, err) : status;
}

/* Append layers that extract an input from the packed sample, beginning with number `first`, then
 * scale and reshape it. The last of these layers has the input's name. */
static gp_status packed_add(gp_netspec *spec, const packed_input *input, int64_t first, gp_error *err)
{
    static const char *const whole = "input";
    const int64_t count = gp_shape_count(&input->shape);
    char name[GP_NAME_MAX + 16], settings[160];
    gp_status status;

    snprintf(name, sizeof(name), "%.60s_part", input->name);
    snprintf(settings, sizeof(settings), "start=%" PRId64 ",0,0;size=%" PRId64 ",1,1", first, count);
    status = gp_netspec_add(spec, name, "crop", settings, err);
    if (status == GP_OK)
        status = gp_netspec_connect(spec, &whole, 1, err);
    snprintf(name, sizeof(name), "%.59s_scale", input->name);
    snprintf(settings, sizeof(settings), "factor=%.17g", input->scale);
    if (status == GP_OK && input->scale != 1.0)
        status = gp_netspec_add(spec, name, "scale", settings, err);
    snprintf(settings, sizeof(settings), "shape=%" PRId64 ",%" PRId64 ",%" PRId64, input->shape.dim[0],
             input->shape.dim[1], input->shape.dim[2]);
    if (status != GP_OK)
        return status;
    return input->shape.rank == 1 ? gp_netspec_add(spec, input->name, "flatten", NULL, err)
                                  : gp_netspec_add(spec, input->name, "reshape", settings, err);
}

/* Create a network from an input list. */
static gp_status read_packed(gp_netspec **out, const char *name, const gp_json *document, gp_error *err)
{
    const gp_json *list = gp_json_member(document, "inputs");
    const size_t count = gp_json_is_array(list) ? gp_json_count(list) : 0;
    packed_input inputs[GP_INPUTS_MAX];
    gp_shape whole = gp_shape3(0, 1, 1);
    gp_netspec *spec;
    gp_status status = GP_OK;
    int64_t first = 0;

    if (count == 0 || count > GP_INPUTS_MAX)
        return gp_fail(err, GP_EINVAL, "\"inputs\" must be a list of 1 to %d inputs", GP_INPUTS_MAX);
    if (gp_json_member(document, "input") != NULL || gp_json_member(document, "scale") != NULL ||
        gp_json_member(document, "offset") != NULL)
        return gp_fail(err, GP_EINVAL, "a network with \"inputs\" cannot have input, scale and offset");
    for (size_t i = 0; i < count && status == GP_OK; i++) {
        status = packed_read(&inputs[i], gp_json_element(list, i), i, err);
        if (status == GP_OK)
            whole.dim[0] += gp_shape_count(&inputs[i].shape);
    }
    if (status == GP_OK)
        status = gp_netspec_new(&spec, name, &whole, err);
    if (status != GP_OK)
        return status;
    for (size_t i = 0; i < count && status == GP_OK; i++) {
        status = packed_add(spec, &inputs[i], first, err);
        first += gp_shape_count(&inputs[i].shape);
    }
    if (status != GP_OK) {
        gp_netspec_free(spec);
        return status;
    }
    *out = spec;
    return GP_OK;
}

/* Read "windows", "fitted" and "resized". */
static gp_status read_view(gp_netspec *spec, const gp_json *document, gp_error *err)
{
    const gp_json *value = gp_json_member(document, "windows"), *fitted = gp_json_member(document, "fitted");
    const gp_json *resized = gp_json_member(document, "resized");

    if (fitted != NULL && !gp_json_is_bool(fitted))
        return gp_fail(err, GP_EINVAL, "\"fitted\" must be true or false");
    spec->fitted = fitted != NULL && gp_json_bool(fitted, false);
    if (resized != NULL && !gp_json_is_bool(resized))
        return gp_fail(err, GP_EINVAL, "\"resized\" must be true or false");
    spec->resized = gp_json_bool(resized, false);
    if (value == NULL)
        return GP_OK;
    if (spec->fitted)
        return gp_fail(err, GP_EINVAL, "a network cannot have both \"windows\" and \"fitted\"");
    spec->windows = true;
    for (size_t i = 0; i < 2; i++) {
        const int64_t side = gp_json_is_array(value) && gp_json_count(value) == 2
                                 ? gp_json_integer(gp_json_element(value, i), -1)
                                 : -1;

        if (side < 0 || side > GP_WINDOW_IMAGE_MAX)
            return gp_fail(err, GP_EINVAL,
                           "\"windows\" must be a list of 2 whole numbers up to %d: height and width to "
                           "which images are resized, or 0 and 0",
                           GP_WINDOW_IMAGE_MAX);
        spec->window_image[i] = (uint32_t)side;
    }
    return GP_OK;
}

/* Read a network; layers come last, because they refer to inputs by name. */
static gp_status read_network(gp_netspec **out, const gp_json *document, gp_error *err)
{
    const gp_json *layers = gp_json_member(document, "layers");
    gp_netspec *spec;
    gp_shape input = { .rank = 3 };

    if (!gp_json_is_object(document))
        return gp_fail(err, GP_EINVAL, "a network must be a JSON object with \"input\" and \"layers\"");
    gp_status status = gp_json_each(document, key_check, NULL, err);

    const gp_json *shape = gp_json_member(document, "input");
    const bool several = gp_json_member(document, "inputs") != NULL;

    if (status != GP_OK)
        return status;
    if (!several && (!gp_json_is_array(shape) || gp_json_count(shape) != 3))
        return gp_fail(err, GP_EINVAL,
                       "\"input\" must be a list of 3 whole numbers: channels, height, width");
    for (size_t i = 0; i < 3 && !several; i++)
        input.dim[i] = gp_json_integer(gp_json_element(shape, i), -1);
    if (!gp_json_is_array(layers))
        return gp_fail(err, GP_EINVAL, "\"layers\" must be a list of layers");
    if (gp_json_member(document, "name") != NULL && !gp_json_is_text(gp_json_member(document, "name")))
        return gp_fail(err, GP_EINVAL, "\"name\" must be a text");
    const char *name = gp_json_text(gp_json_member(document, "name"), "network");

    status = several ? read_packed(&spec, name, document, err) : gp_netspec_new(&spec, name, &input, err);
    if (status != GP_OK)
        return status;
    status = read_normalization(spec, document, err);
    if (status == GP_OK)
        status = read_view(spec, document, err);
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
        return gp_fail(err, GP_ELIMIT, "a network has %zu bytes of JSON, at most %d are supported", bytes,
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
    /* For index 0, index - 1 equals GP_INPUT_LAYER. */
    if (layer->input_count != 1 || layer->inputs[0] != index - 1) {
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
    if (spec->scale_unknown)
        gp_json_put_bool(&writer, "scale_unknown", true);
    if (spec->windows) {
        gp_json_one_line(&writer);
        gp_json_begin_array(&writer, "windows");
        for (int i = 0; i < 2; i++)
            gp_json_put_integer(&writer, NULL, spec->window_image[i]);
        gp_json_end_array(&writer);
    }
    if (spec->fitted)
        gp_json_put_bool(&writer, "fitted", true);
    if (spec->resized)
        gp_json_put_bool(&writer, "resized", true);
    gp_json_begin_array(&writer, "layers");
    for (uint32_t i = 0; i < spec->layer_count; i++)
        write_layer(&writer, spec, i);
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    return gp_json_writer_finish(&writer, err);
}
