/* `gradpool model show`: layers, shapes, parameters, multiply-adds, and the memory estimate of a
 * network. */
#include <inttypes.h>
#include <stdio.h>

#include "client/cli/model/model_verbs.h"
#include "client/cli/show.h"
#include "client/train/transfer.h"
#include "common/model/network.h"
#include "common/model/graph/normalization.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "common/model/cost.h"

/* A network with computed costs. */
typedef struct net_view {
    const net_options *options;
    gp_network network;
    gp_graph *graph;
    gp_layer_cost *costs; /* one entry per layer; owned */
    gp_layer_cost sum;
    gp_memory_estimate memory[GP_PHASE_COUNT];
} net_view;

/* Format the settings that differ from their defaults, e.g. "20 kernel=3 stride=2". */
static void settings_format(const gp_layer *layer, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (const gp_param *p = layer->kind->settings_table; p->type != GP_PARAM_NONE; p++) {
        char value[40];

        if (gp_params_changed(p, layer->settings) && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s=%s", used == 0 ? "" : " ", p->name,
                                     gp_params_format(p, layer->settings, value, sizeof(value)));
    }
}

/* Format a count with a decimal prefix, e.g. "1.81 G" for 1814073344. */
static const char *count_format(double count, char *text, size_t bytes)
{
    static const char units[] = " kMGT";
    int unit = 0;

    while (count >= 1000 && units[unit + 1] != '\0') {
        count /= 1000;
        unit++;
    }
    snprintf(text, bytes, unit == 0 ? "%.0f" : "%.3g %c", count, units[unit]);
    return text;
}

/* Print how training images were cropped or resized, unless the network was trained on unchanged
 * images. */
static void show_view(const gp_netspec *spec)
{
    char brought[40] = "";

    if (spec->window_image[0] != 0)
        snprintf(brought, sizeof(brought), " resized to %" PRIu32 "x%" PRIu32 ",", spec->window_image[0],
                 spec->window_image[1]);
    if (spec->windows)
        printf("trained on images%s cropped to %" PRId64 "x%" PRId64 "\n", brought, spec->input.dim[1],
               spec->input.dim[2]);
    if (spec->resized)
        printf("trained on images stretched to %" PRId64 "x%" PRId64 "\n", spec->input.dim[1],
               spec->input.dim[2]);
    if (spec->fitted)
        printf("trained on images scaled to cover %" PRId64 "x%" PRId64 "\n", spec->input.dim[1],
               spec->input.dim[2]);
}

static void show_text(const net_view *view)
{
    const double forward = (double)view->sum.forward_macs, backward = (double)view->sum.backward_macs;
    const gp_netspec *spec = view->graph->spec;
    char one[32], two[32], flops[32], all[32], normalization[GP_NORMALIZATION_TEXT];

    show_table *table = show_table_new(6, "layer\tkind\toutput\tparameters\tmultiply-adds\tsettings");
    char shape[64], macs[32], settings[120];

    show_cells(table, "input\t\t%s\t0\t0\t", gp_shape_format(&spec->input, shape, sizeof(shape)));
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        settings_format(&spec->layers[i], settings, sizeof(settings));
        show_cells(table, "%s\t%s\t%s\t%" PRId64 "\t%s\t%s", spec->layers[i].name, spec->layers[i].kind->name,
                   gp_shape_format(&view->graph->outputs[i], shape, sizeof(shape)), view->costs[i].parameters,
                   count_format((double)view->costs[i].forward_macs, macs, sizeof(macs)), settings);
    }
    show_table_print_free(table);
    printf("\n%zu parameters (%.1f KiB), %" PRIu32 " classes\n", view->graph->learned_count,
           (double)view->graph->learned_count * 4 / 1024, view->graph->class_count);
    printf("image normalization: %s%s\n", gp_normalization_format(spec, normalization),
           spec->scale_unknown ? "; images require --image-normalization" : "");
    show_view(spec);
    printf("one sample: %s multiply-adds forward, %s backward; %s FLOPs to predict, %s to train\n",
           count_format(forward, one, sizeof(one)), count_format(backward, two, sizeof(two)),
           count_format(2 * forward, flops, sizeof(flops)),
           count_format(2 * (forward + backward), all, sizeof(all)));
    static const char *const names[] = { [GP_PHASE_TRAIN] = "training", [GP_PHASE_INFER] = "prediction" };
    table = show_table_new(6, "memory\tparameters\tgradients\toptimiser\tactivations\ttotal");

    for (int phase = 0; phase < GP_PHASE_COUNT; phase++) {
        const gp_memory_estimate *m = &view->memory[phase];
        const double bytes[] = { m->parameters, m->gradients, m->state, m->activations, m->total };
        char text[40];

        show_cells(table, "%s", names[phase]);
        for (int i = 0; i < 5; i++)
            show_cells(table, "%s", cli_bytes(bytes[i], text, sizeof(text)));
    }
    printf("\nestimated for %" PRId64 " samples on one worker (without packed weights of kernels):\n",
           view->options->batch);
    show_table_print_free(table);
}

static void put_memory(gp_json_writer *writer, const char *name, const gp_memory_estimate *memory)
{
    gp_json_begin_object(writer, name);
    gp_json_put_integer(writer, "parameters", (int64_t)memory->parameters);
    gp_json_put_integer(writer, "gradients", (int64_t)memory->gradients);
    gp_json_put_integer(writer, "optimiser", (int64_t)memory->state);
    gp_json_put_integer(writer, "activations", (int64_t)memory->activations);
    gp_json_put_integer(writer, "total", (int64_t)memory->total);
    gp_json_end_object(writer);
}

static gp_status show_json(const net_view *view, gp_error *err)
{
    const gp_graph *graph = view->graph;
    const gp_netspec *spec = graph->spec;
    json_document json;
    char shape[64], settings[120], normalization[GP_NORMALIZATION_TEXT];
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_put_text(writer, "name", spec->name);
    gp_json_put_text(writer, "input", gp_shape_format(&spec->input, shape, sizeof(shape)));
    gp_json_put_text(writer, "image_normalization", gp_normalization_format(spec, normalization));
    gp_json_put_integer(writer, "parameters", (int64_t)graph->learned_count);
    gp_json_put_integer(writer, "forward_macs", view->sum.forward_macs);
    gp_json_put_integer(writer, "backward_macs", view->sum.backward_macs);
    gp_json_put_integer(writer, "classes", graph->class_count);
    gp_json_begin_object(writer, "memory_estimate");
    gp_json_put_integer(writer, "samples", view->options->batch);
    put_memory(writer, "training", &view->memory[GP_PHASE_TRAIN]);
    put_memory(writer, "prediction", &view->memory[GP_PHASE_INFER]);
    gp_json_end_object(writer);
    gp_json_begin_array(writer, "layers");
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        settings_format(&spec->layers[i], settings, sizeof(settings));
        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "name", spec->layers[i].name);
        gp_json_put_text(writer, "kind", spec->layers[i].kind->name);
        gp_json_put_text(writer, "output", gp_shape_format(&graph->outputs[i], shape, sizeof(shape)));
        gp_json_put_integer(writer, "parameters", view->costs[i].parameters);
        gp_json_put_integer(writer, "forward_macs", view->costs[i].forward_macs);
        gp_json_put_integer(writer, "backward_macs", view->costs[i].backward_macs);
        gp_json_put_text(writer, "settings", settings);
        gp_json_end_object(writer);
    }
    gp_json_end_array(writer);
    return show_json_print(&json, err);
}

/* Compute the network's costs and memory. */
static gp_status view_measure(net_view *view, gp_error *err)
{
    const uint32_t layers = view->network.spec->layer_count;
    gp_status status = gp_graph_new(&view->graph, view->network.spec, err);

    if (status != GP_OK)
        return status;
    view->costs = gp_calloc(layers, sizeof(*view->costs));
    if (view->costs == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the costs of %" PRIu32 " layers", layers);
    gp_graph_costs(view->graph, view->costs);
    for (uint32_t i = 0; i < layers; i++) {
        view->sum.forward_macs += view->costs[i].forward_macs;
        view->sum.backward_macs += view->costs[i].backward_macs;
    }
    for (int phase = 0; phase < GP_PHASE_COUNT && status == GP_OK; phase++)
        status = gp_graph_memory(&view->memory[phase], view->graph, (gp_phase)phase, view->options->batch,
                                 (gp_solver)view->options->solver, err);
    return status;
}

/* Without --input and --classes, the network keeps its own values. */
gp_status net_show(cli_call *call, gp_error *err)
{
    net_view view = { .options = call->options };
    const char *given = view.options->input, *name = call->words[1];
    gp_shape dims = { 3, { 0 } }, *input = given[0] != '\0' ? &dims : NULL;
    uint32_t classes = 0;
    gp_status status = GP_OK;

    if (input != NULL &&
        sscanf(given, "%" SCNd64 "x%" SCNd64 "x%" SCNd64, &dims.dim[0], &dims.dim[1], &dims.dim[2]) != 3) {
        call->code =
            cli_usage(call, "--input is '%s'; it must be CHANNELSxHEIGHTxWIDTH, such as 1x28x28", given);
        return GP_OK;
    }
    if (view.options->classes[0] != '\0')
        status = gp_transfer_classes(&classes, view.options->classes, NULL, 0, err);
    if (status == GP_OK)
        status = gp_network_is_file(name) ? gp_network_load(&view.network, name, input, classes, err)
                                          : gp_zoo_build(&view.network.spec, name, input, classes, err);
    if (status == GP_OK)
        status = view_measure(&view, err);
    if (status == GP_OK && view.options->common.json)
        status = show_json(&view, err);
    else if (status == GP_OK)
        show_text(&view);
    gp_free(view.costs);
    gp_graph_free(view.graph);
    gp_network_deinit(&view.network);
    return status;
}
