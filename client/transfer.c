#include "client/transfer.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

static gp_status classes_wanted(const gp_transfer *how, uint32_t *classes, gp_error *err)
{
    char *end;
    long number;

    if (how->data_classes == 0)
        return gp_fail(err, GP_EINVAL,
                       "%.100s has no classes; a head for values is put on by gradpool net edit "
                       "--remove-last N --add ...",
                       how->source);
    *classes = how->data_classes;
    if (strcmp(how->classes, "auto") != 0) {
        number = strtol(how->classes, &end, 10);
        if (end == how->classes || *end != '\0' || number < 1 || number > UINT32_MAX)
            return gp_fail(err, GP_EINVAL, "classes is '%.40s'; it must be auto or a number", how->classes);
        if (number != how->data_classes)
            return gp_fail(err, GP_EINVAL,
                           "classes is %ld, and %.120s has %" PRIu32 "; say auto for as many as it has",
                           number, how->source, how->data_classes);
    }
    if (*classes < 2)
        return gp_fail(err, GP_EINVAL, "%.120s has %" PRIu32 " class; a classification needs at least 2",
                       how->source, *classes);
    return GP_OK;
}

static bool classes_same(const gp_network *network, const gp_transfer *how)
{
    if (network->class_names == NULL || network->class_count != how->data_classes)
        return false;
    for (uint32_t i = 0; i < how->data_classes; i++)
        if (strcmp(network->class_names[i], how->data_names[i]) != 0)
            return false;
    return true;
}

static gp_status transfer_edit(gp_edit *edit, const gp_network *network, const gp_transfer *how,
                               gp_error *err)
{
    gp_edit_head head = { .weight_learn_rate = how->head_factors[0] != 0 ? how->head_factors[0] : 1,
                          .bias_learn_rate = how->head_factors[1] != 0 ? how->head_factors[1] : 1 };
    gp_status status = GP_OK;

    if (how->classes != NULL)
        status = classes_wanted(how, &head.classes, err);
    if (status == GP_OK && how->classes != NULL && !classes_same(network, how))
        status = gp_edit_set_head(edit, &head, err);
    if (status == GP_OK && how->freeze_up_to != NULL)
        status = gp_edit_freeze(edit, how->freeze_up_to, err);
    return status;
}

gp_status gp_network_transfer(gp_network *network, const gp_transfer *how, gp_edited *edited, gp_error *err)
{
    gp_edit *edit;
    gp_status status = gp_edit_new(&edit, network->spec, network->weights, err);

    if (status != GP_OK)
        return status;
    status = transfer_edit(edit, network, how, err);
    if (status == GP_OK)
        status = gp_edit_finish(edit, how->rule, how->seed, edited, err);
    gp_edit_free(edit);
    if (status != GP_OK)
        return status;
    gp_netspec_free(network->spec);
    gp_free(network->weights);
    network->spec = edited->spec;
    network->weights = edited->weights;
    edited->spec = NULL;
    edited->weights = NULL;
    gp_graph_free(edited->graph);
    edited->graph = NULL;
    return GP_OK;
}

gp_status gp_network_pretrained(gp_network *out, const char *name, gp_error *err)
{
    gp_network network;
    gp_status status = gp_network_load(&network, name, NULL, 0, err);

    if (status != GP_OK)
        return status;
    if (network.weights == NULL) {
        gp_network_deinit(&network);
        return gp_fail(
            err, GP_EINVAL,
            "%s has no weights: nothing in it is trained; --network %s trains it from the beginning", name,
            name);
    }
    *out = network;
    return GP_OK;
}

gp_status gp_network_check_data(const gp_graph *graph, const gp_shape *sample, uint32_t classes,
                                const char *source, gp_error *err)
{
    const gp_netspec *spec = graph->spec;
    char have[64], want[64];

    if (!gp_shape_equal(sample, &spec->input))
        return gp_fail(
            err, GP_EINVAL,
            "the samples of %.60s are %s (channels x height x width), network %s takes %s; folders of images "
            "are brought to that by themselves, or: gradpool net edit FILE --set input.size=%s",
            source, gp_shape_format(sample, have, sizeof(have)), spec->name,
            gp_shape_format(&spec->input, want, sizeof(want)), have);
    if (classes != 0 && graph->class_count != 0 && classes != graph->class_count)
        return gp_fail(err, GP_EINVAL,
                       "%.80s has %" PRIu32 " classes; network %s ends in %" PRIu32
                       "; --pretrained FILE.onnx --classes auto puts a new head on a trained network",
                       source, classes, spec->name, graph->class_count);
    return GP_OK;
}
