/* `gradpool model`: subcommands for networks and model files. */
#include "client/cli/model/model_verbs.h"

/* In gp_solver order, like the --solver option of train. */
static const char *const solver_names[] = { "sgdm", "adam", "adamw", "rmsprop", NULL };

static const gp_param net_params[] = {
    { .name = "input",
      GP_PARAM_FIELD(net_options, input),
      .placeholder = "CxHxW",
      .help = "show: input of a named network, CxHxW; default: its own" },
    { .name = "classes",
      GP_PARAM_FIELD(net_options, classes),
      .placeholder = "N|auto",
      .help = "show: classes of a named network; edit: new head for N classes, or auto to use the number in "
              "--data" },
    { .name = "mini-batch-size",
      .alias = "batch-size",
      GP_PARAM_FIELD(net_options, batch),
      .fallback = 128,
      .min = 1,
      .max = 1 << 20,
      .help = "show: samples per worker for the memory estimate" },
    { .name = "solver",
      GP_PARAM_FIELD(net_options, solver),
      .words = solver_names,
      .help = "show: solver for the memory estimate" },
    { .name = "sha256",
      GP_PARAM_FIELD(net_options, sha256),
      .help = "get: expected SHA-256 sum of the file" },
    { .name = "url",
      GP_PARAM_FIELD(net_options, url),
      .help = "get: download address of a known model (default: $GRADPOOL_MODEL_URL, else built in)" },
    { .name = "out",
      .alias = "o",
      GP_PARAM_FIELD(net_options, out),
      .placeholder = "FILE",
      .help = "edit: output file, FILE.onnx or FILE.json" },
    { .name = "remove-last",
      GP_PARAM_FIELD(net_options, remove_last),
      .max = 4095,
      .help = "edit: remove N layers from the end, including the loss" },
    { .name = "remove-from",
      GP_PARAM_FIELD(net_options, remove_from),
      .placeholder = "LAYER",
      .help = "edit: remove this layer and all layers after it" },
    { .name = "add",
      GP_PARAM_FIELD(net_options, add),
      .help = "edit: add a layer, [NAME=]KIND[:VALUE][,setting=value...][,inputs=A+B]; repeatable" },
    { .name = "set",
      GP_PARAM_FIELD(net_options, set),
      .help = "edit: set LAYER.setting=value, input.normalization=, input.scale=, input.offset= or "
              "input.size=; repeatable" },
    { .name = "data",
      GP_PARAM_FIELD(net_options, data),
      .placeholder = "SOURCE",
      .help = "edit: data source for --classes auto and the class names" },
    { .name = "head-learn-rate-factor",
      GP_PARAM_FIELD(net_options, head_factor),
      .fallback = 1,
      .max = 1e6,
      .help = "edit: learn-rate factors of the new weights and biases" },
    { .name = "freeze-up-to",
      GP_PARAM_FIELD(net_options, freeze_up_to),
      .placeholder = "LAYER",
      .help = "edit: set learn-rate factors of 0 for this layer and all layers before it" },
    { .name = "class-names",
      GP_PARAM_FIELD(net_options, class_names),
      .placeholder = "A,B|FILE.txt",
      .help = "edit: names of the outputs, A,B,... or FILE.txt with one name per line; they are matched with "
              "the classes of the data" },
    { .name = "unfreeze",
      GP_PARAM_FIELD(net_options, unfreeze),
      .help = "edit: set learn-rate factors of 1 for all layers" },
    CLI_JSON_PARAM(net_options),
    CLI_COMMON_PARAMS(net_options),
    { 0 },
};

static const cli_verb net_verbs[] = {
    { "list", "", "list the networks that have a name, with their settings", 0, 0, net_list },
    { "show", "NETWORK", "show layers, parameters, operations and memory of a network", 1, 1, net_show },
    { "get", "MODEL|URL", "download a trained network and print the path of the file", 1, 1, net_get },
    { "edit", "NETWORK -o FILE", "remove, add and freeze layers, and write the result", 1, 1, net_edit },
    { 0 },
};

const cli_command cli_command_model = {
    .name = "model",
    .summary = "list, show, download or edit networks",
    .description =
        "Work with networks. NETWORK is a name of `gradpool model list`, with settings after a colon, or "
        "a file: FILE.onnx or FILE.json. Option descriptions begin with the verb that they belong to.\n\n"
        "Downloads are stored in the cache below ~/.cache/gradpool. A broken download resumes where it "
        "stopped, and files with a known SHA-256 sum are verified.",
    .examples = "  gradpool model list\n"
                "  gradpool model show lenet\n"
                "  gradpool model show googlenet:form=caffe --classes 10 --mini-batch-size 32\n"
                "  gradpool model show model.onnx --json\n"
                "  gradpool model get resnet18\n"
                "  gradpool model get https://example.org/models/net.onnx --sha256 SUM\n"
                "  gradpool model edit alexnet.onnx --remove-last 2 --add fc:55,weight-learn-rate-factor=10 "
                "-o head55.onnx\n"
                "  gradpool model edit animals.onnx --classes auto --data vehicles/ --freeze-up-to pool2 -o "
                "vehicles.onnx\n"
                "  gradpool model edit net.onnx --set input.normalization=0..1 --class-names cat,dog "
                "-o ours.onnx\n",
    .options = net_params,
    .options_bytes = sizeof(net_options),
    .words_max = 2,
    .verbs = net_verbs,
};
