#include "client/train/transfer.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/system/cached.h"
#include "common/base/text/json.h"
#include "common/base/text/spell.h"
#include "common/data/store/class_match.h"
#include "common/data/download/get.h"
#include "common/model/graph/normalization.h"

gp_status gp_transfer_classes(uint32_t *classes, const char *text, const char *source, uint32_t data_classes,
                              gp_error *err)
{
    bool automatic = strcmp(text, "auto") == 0;
    char *end;
    long number = automatic ? (long)data_classes : strtol(text, &end, 10);

    if (source != NULL && data_classes == 0)
        return gp_fail(err, GP_EINVAL,
                       "%.100s has no classes; to add a regression head, use gradpool model edit "
                       "--remove-last N --add ...",
                       source);
    if (automatic && source == NULL)
        return gp_fail(err, GP_EINVAL, "classes is auto, but no data is given; give data or a number");
    if (!automatic && (end == text || *end != '\0' || number < 1 || number > GP_CHANNELS_MAX))
        return gp_fail(err, GP_EINVAL, "classes is '%.40s'; it must be auto or a number from 2 to %d", text,
                       GP_CHANNELS_MAX);
    if (source != NULL && number != (long)data_classes)
        return gp_fail(err, GP_EINVAL,
                       "classes is %ld, and %.120s has %" PRIu32 "; use auto for the number in the data",
                       number, source, data_classes);
    if (number < 2)
        return gp_fail(err, GP_EINVAL, "%ld class%s%.120s; a classification needs at least 2", number,
                       source != NULL ? " in " : "", source != NULL ? source : "");
    *classes = (uint32_t)number;
    return GP_OK;
}

gp_layer_change gp_transfer_change(const gp_edit_change *change, char output[64])
{
    return (gp_layer_change){ .action = gp_edit_action_name(change->action),
                              .layer = change->layer,
                              .kind = change->kind,
                              .output = gp_shape_format(&change->output, output, 64),
                              .settings = change->settings,
                              .parameters = change->parameters };
}

bool gp_transfer_keeps_head(const gp_network *network, const gp_transfer *how)
{
    return how->classes == NULL ||
           (network->class_names != NULL &&
            gp_class_names_equal((const char *const *)network->class_names, network->class_count,
                                 how->data_names, how->data_classes));
}

gp_status gp_network_transfer(gp_network *network, const gp_transfer *how, gp_edited *edited, gp_error *err)
{
    gp_edit_head head = { .weight_learn_rate = how->head_factors[0] != 0 ? how->head_factors[0] : 1,
                          .bias_learn_rate = how->head_factors[1] != 0 ? how->head_factors[1] : 1 };
    gp_edit *edit;
    gp_status status = gp_edit_new(&edit, network->spec, network->weights, err);

    if (status != GP_OK)
        return status;
    if (how->classes != NULL)
        status = gp_transfer_classes(&head.classes, how->classes, how->source, how->data_classes, err);
    if (status == GP_OK && !gp_transfer_keeps_head(network, how))
        status = gp_edit_set_head(edit, &head, err);
    if (status == GP_OK && how->freeze_up_to != NULL)
        status = gp_edit_freeze(edit, how->freeze_up_to, err);
    if (status == GP_OK)
        status = gp_edit_finish(edit, how->rule, how->seed, edited, err);
    gp_edit_free(edit);
    if (status != GP_OK)
        return status;
    gp_netspec_free(network->spec);
    network->spec = edited->spec;
    gp_network_set_weights(network, edited->weights, 0);
    edited->spec = NULL;
    edited->weights = NULL;
    gp_graph_free(edited->graph);
    edited->graph = NULL;
    return GP_OK;
}

/* Build the cache path of a published network, as used by `gradpool model get NAME`. *known is set
 * to whether the name can be downloaded. */
static gp_status pretrained_path(char *path, size_t bytes, const char *name, bool *known, gp_error *err)
{
    char file[300];

    snprintf(file, sizeof(file), "%.200s.onnx", name);
    *known = false;
    for (const gp_get_set *set = gp_get_models; set->name != NULL; set++)
        if (strcmp(set->name, name) == 0) {
            *known = true;
            snprintf(file, sizeof(file), "%s", set->files[0].name);
        }
    return gp_cache_path(path, bytes, "models", file, err);
}

static gp_status pretrained_missing(const char *name, const char *path, bool known, gp_error *err)
{
    const char *near = NULL;
    unsigned distance = 0;

    if (known)
        return gp_fail(err, GP_ENOENT, "the trained %s is not in the cache; run: gradpool model get %s", name,
                       name);
    for (const gp_get_set *set = gp_get_models; set->name != NULL; set++)
        gp_spell_offer(name, set->name, &near, &distance);
    if (near != NULL)
        return gp_fail(err, GP_ENOENT, "unknown trained network '%.64s'; did you mean '%s'?", name, near);
    return gp_fail(err, GP_ENOENT,
                   "unknown trained network '%.64s', and no file %.120s; give FILE.onnx, or a name from "
                   "gradpool model list",
                   name, path);
}

gp_status gp_network_pretrained(gp_network *out, const char *name, gp_error *err)
{
    gp_network network = { 0 };
    char path[PATH_MAX];
    bool file = gp_network_is_file(name), known = false;
    gp_status status = GP_OK;

    if (!file)
        status = pretrained_path(path, sizeof(path), name, &known, err);
    if (status == GP_OK && !file && access(path, R_OK) != 0)
        return pretrained_missing(name, path, known, err);
    if (status == GP_OK)
        status = gp_network_load(&network, file ? name : path, NULL, 0, err);
    if (status != GP_OK)
        return status;
    if (network.weights == NULL) {
        gp_network_deinit(&network);
        return gp_fail(err, GP_EINVAL,
                       "%.100s has no weights; to train it from the beginning, use --network %.100s", name,
                       name);
    }

    /* A file may be a published network at its cache path. */
    if (file)
        for (const gp_get_set *set = gp_get_models; set->name != NULL && !known; set++) {
            known = pretrained_path(path, sizeof(path), set->name, &known, NULL) == GP_OK &&
                    strcmp(path, name) == 0;
            name = known ? set->name : name;
        }

    /* The file of a published network does not state its normalization, but the zoo network of the
     * same name does. */
    gp_netspec *spec = network.spec, *ours;

    if (known && spec->scale_unknown && gp_zoo_build(&ours, name, &spec->input, 0, NULL) == GP_OK) {
        gp_netspec_normalize(spec, ours->scale, ours->offset, ours->normalize_count, NULL);
        gp_netspec_free(ours);
    }
    *out = network;
    return GP_OK;
}

gp_status gp_network_classes_write(const gp_network *network, uint32_t count, gp_buffer *out, gp_error *err)
{
    gp_json_writer writer;
    char number[16];

    gp_json_writer_init(&writer, out, false);
    gp_json_begin_array(&writer, NULL);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(number, sizeof(number), "%" PRIu32, i);
        gp_json_put_text(&writer, NULL, network->class_names != NULL ? network->class_names[i] : number);
    }
    gp_json_end_array(&writer);
    return gp_json_writer_finish(&writer, err);
}

gp_status gp_network_check_data(const gp_graph *graph, const gp_store_info *info, gp_error *err)
{
    const gp_netspec *spec = graph->spec;
    const gp_shape sample = gp_shape3(info->channels, info->height, info->width);
    gp_status status = gp_netspec_check_samples(spec, &sample, info->dtype, info->source, err);

    if (status != GP_OK)
        return status;
    if (gp_store_has_class(info) && graph->end_count == 1 && graph->class_count != 0 &&
        graph->ends[0].target.shape.rank == 0 && info->class_count != graph->class_count)
        return gp_fail(err, GP_EINVAL,
                       "%.80s has %" PRIu32 " classes; network %s ends in %" PRIu32
                       "; to give a trained network a new head, use --pretrained FILE.onnx --classes auto",
                       info->source, info->class_count, spec->name, graph->class_count);
    return gp_graph_check_targets(graph, info->targets, info->target_count, info->source, err);
}
