#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "common/model/network.h"
#include "common/base/json.h"

typedef struct net_options {
    cli_common common;
    char input[40];
    int64_t classes;
} net_options;

static const gp_param net_params[] = {
    { .name = "input",
      .type = GP_PARAM_TEXT,
      .offset = offsetof(net_options, input),
      .count = 40,
      .fallback_text = "1x28x28",
      .help = "channels x height x width, for a network of the zoo" },
    { .name = "classes",
      .type = GP_PARAM_I64,
      .offset = offsetof(net_options, classes),
      .fallback = 10,
      .min = 1,
      .max = 65536,
      .help = "classes, for a network of the zoo" },
    CLI_JSON_PARAM(net_options),
    CLI_COMMON_PARAMS(net_options),
    { 0 },
};

static int64_t layer_parameters(const gp_graph *graph, uint32_t layer)
{
    int64_t count = 0;

    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i].layer == layer && graph->parameters[i].statistic == GP_STATISTIC_NONE)
            count += graph->parameters[i].count;
    return count;
}

static void net_show_text(const gp_graph *graph)
{
    const gp_netspec *spec = graph->spec;
    show_table *table =
        show_table_new(5, (const char *[]){ "layer", "kind", "output", "parameters", "settings" });
    char shape[64];

    show_row(table,
             (const char *[]){ "input", "", gp_shape_format(&spec->input, shape, sizeof(shape)), "0", "" });
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        const gp_layer *layer = &spec->layers[i];
        char count[32], settings[120] = "";
        size_t used = 0;

        for (const gp_param *p = layer->kind->settings_table; p->type != GP_PARAM_NONE; p++) {
            char value[40];

            if (gp_params_changed(p, layer->settings) && used < sizeof(settings))
                used += (size_t)snprintf(settings + used, sizeof(settings) - used, "%s%s=%s",
                                         used == 0 ? "" : " ", p->name,
                                         gp_params_format(p, layer->settings, value, sizeof(value)));
        }
        snprintf(count, sizeof(count), "%" PRId64, layer_parameters(graph, i));
        show_row(table, (const char *[]){ layer->name, layer->kind->name,
                                          gp_shape_format(&graph->outputs[i], shape, sizeof(shape)), count,
                                          settings });
    }
    show_table_print_free(table);
    printf("\n%zu parameters (%.1f KiB), %.2f million multiply-adds for one sample forward, %" PRIu32
           " classes\n",
           graph->learned_count, (double)graph->learned_count * 4 / 1024,
           (double)gp_graph_forward_macs(graph) * 1e-6, graph->class_count);
}

static gp_status net_show_json(const gp_graph *graph, gp_error *err)
{
    const gp_netspec *spec = graph->spec;
    gp_buffer text;
    gp_json_writer writer;
    char shape[64];

    gp_buffer_init(&text, GP_JSON_BYTES_MAX);
    gp_json_writer_init(&writer, &text, true);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_text(&writer, "name", spec->name);
    gp_json_put_text(&writer, "input", gp_shape_format(&spec->input, shape, sizeof(shape)));
    gp_json_put_integer(&writer, "parameters", (int64_t)graph->learned_count);
    gp_json_put_integer(&writer, "forward_macs", gp_graph_forward_macs(graph));
    gp_json_put_integer(&writer, "classes", graph->class_count);
    gp_json_begin_array(&writer, "layers");
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        gp_json_begin_object(&writer, NULL);
        gp_json_put_text(&writer, "name", spec->layers[i].name);
        gp_json_put_text(&writer, "kind", spec->layers[i].kind->name);
        gp_json_put_text(&writer, "output", gp_shape_format(&graph->outputs[i], shape, sizeof(shape)));
        gp_json_put_integer(&writer, "parameters", layer_parameters(graph, i));
        gp_json_end_object(&writer);
    }
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    gp_status status = gp_json_writer_finish(&writer, err);

    if (status == GP_OK)
        printf("%s\n", gp_buffer_text(&text));
    gp_buffer_deinit(&text);
    return status;
}

/* "form=torchvision|caffe [torchvision]: ..." */
static void net_list_setting(const gp_param *param)
{
    unsigned char scratch[512];
    gp_param one[2] = { *param, { 0 } };
    char words[160] = "", fallback[40];

    one[0].offset = 0;
    gp_params_default(one, scratch);
    for (int i = 0; param->type == GP_PARAM_WORD && param->words[i] != NULL; i++) {
        size_t used = strlen(words);

        snprintf(words + used, sizeof(words) - used, "%s%s", i == 0 ? "" : "|", param->words[i]);
    }
    if (param->type == GP_PARAM_I64 || param->type == GP_PARAM_F64)
        snprintf(words, sizeof(words), "%g..%g", param->min, param->max);
    printf("    %s=%s [%s]  %s\n", param->name, param->type == GP_PARAM_BOOL ? "true|false" : words,
           gp_params_format(one, scratch, fallback, sizeof(fallback)), param->help);
}

static void net_list_text(void)
{
    gp_zoo_info info;
    char shape[64];

    for (size_t i = 0; gp_zoo_describe(i, &info); i++) {
        printf("%-18s %-10s %5" PRIu32 " classes  %s\n", info.name,
               gp_shape_format(&info.input, shape, sizeof(shape)), info.classes, info.about);
        for (const gp_param *param = info.settings; param->type != GP_PARAM_NONE; param++)
            net_list_setting(param);
    }
}

static void net_list_json(void)
{
    gp_buffer text;
    gp_json_writer writer;
    gp_zoo_info info;
    char shape[64];

    gp_buffer_init(&text, 1 << 16);
    gp_json_writer_init(&writer, &text, true);
    gp_json_begin_array(&writer, NULL);
    for (size_t i = 0; gp_zoo_describe(i, &info); i++) {
        gp_json_begin_object(&writer, NULL);
        gp_json_put_text(&writer, "name", info.name);
        gp_json_put_text(&writer, "about", info.about);
        gp_json_put_text(&writer, "input", gp_shape_format(&info.input, shape, sizeof(shape)));
        gp_json_put_integer(&writer, "classes", info.classes);
        gp_json_begin_array(&writer, "settings");
        for (const gp_param *param = info.settings; param->type != GP_PARAM_NONE; param++)
            gp_json_put_text(&writer, NULL, param->name);
        gp_json_end_array(&writer);
        gp_json_end_object(&writer);
    }
    gp_json_end_array(&writer);
    if (gp_json_writer_finish(&writer, NULL) == GP_OK)
        printf("%s\n", gp_buffer_text(&text));
    gp_buffer_deinit(&text);
}

static int net_run(cli_call *call)
{
    const net_options *options = call->options;
    gp_network network = { 0 };
    gp_graph *graph = NULL;
    gp_shape input = { 3, { 0 } };
    gp_error err;
    gp_status status;

    if (call->word_count == 1 && strcmp(call->words[0], "list") == 0) {
        if (options->common.json)
            net_list_json();
        else
            net_list_text();
        return CLI_OK;
    }
    if (call->word_count != 2 || strcmp(call->words[0], "show") != 0)
        return cli_usage(call, "usage: gradpool net %s", call->command->usage);
    if (sscanf(options->input, "%" SCNd64 "x%" SCNd64 "x%" SCNd64, &input.dim[0], &input.dim[1],
               &input.dim[2]) != 3)
        return cli_usage(call, "--input is '%s'; it must be CHANNELSxHEIGHTxWIDTH, such as 1x28x28",
                         options->input);
    status = gp_network_load(&network, call->words[1], &input, (uint32_t)options->classes, &err);
    if (status == GP_OK)
        status = gp_graph_new(&graph, network.spec, &err);
    if (status == GP_OK && options->common.json)
        status = net_show_json(graph, &err);
    else if (status == GP_OK)
        net_show_text(graph);
    gp_graph_free(graph);
    gp_network_deinit(&network);
    return status == GP_OK ? CLI_OK : cli_fail(call, &err);
}

extern const cli_command cli_command_net;
const cli_command cli_command_net = {
    .name = "net",
    .summary = "the networks that have names; layers, shapes, parameters of one",
    .usage = "show NETWORK [--input CxHxW] [--classes N] | list [--json]",
    .examples = "  gradpool net list\n"
                "  gradpool net show lenet\n"
                "  gradpool net show googlenet:form=caffe --input 3x224x224 --classes 1000\n"
                "  gradpool net show model.onnx --json\n",
    .options = net_params,
    .options_bytes = sizeof(net_options),
    .words_max = 2,
    .run = net_run,
};
