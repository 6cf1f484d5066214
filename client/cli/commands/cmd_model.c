/* `gradpool model`: subcommands for networks and model files. */
#include "client/cli/model/model_verbs.h"

/* In gp_solver order, like the --solver option of train. */
static const char *const solver_names[] = { "sgdm", "adam", "adamw", "rmsprop", NULL };

static const gp_param net_params[] = {
    { .name = "input",
      GP_PARAM_FIELD(net_options, input),
      .help = "show: channels x height x width, for a network with a name; default: its own" },
    { .name = "classes",
      GP_PARAM_FIELD(net_options, classes),
      .help = "show: of a network with a name; edit: a new head for so many, or auto: those of --data" },
    { .name = "mini-batch-size",
      .alias = "batch-size",
      GP_PARAM_FIELD(net_options, batch),
      .fallback = 128,
      .min = 1,
      .max = 1 << 20,
      .help = "show: samples of a worker for which memory is estimated" },
    { .name = "solver",
      GP_PARAM_FIELD(net_options, solver),
      .words = solver_names,
      .help = "show: whose state counts as memory" },
    { .name = "sha256", GP_PARAM_FIELD(net_options, sha256), .help = "get: the sum that the file must have" },
    { .name = "url",
      GP_PARAM_FIELD(net_options, url),
      .help = "get: where a known model's file is ($GRADPOOL_MODEL_URL is another way to name it)" },
    { .name = "out",
      .alias = "o",
      GP_PARAM_FIELD(net_options, out),
      .help = "edit: where the network goes, FILE.onnx or FILE.json" },
    { .name = "remove-last",
      GP_PARAM_FIELD(net_options, remove_last),
      .max = 4095,
      .help = "edit: so many layers from the end, the loss counted" },
    { .name = "remove-from",
      GP_PARAM_FIELD(net_options, remove_from),
      .help = "edit: this layer and all behind it" },
    { .name = "add",
      GP_PARAM_FIELD(net_options, add),
      .help = "edit: [NAME=]KIND[:VALUE][,setting=value...][,inputs=A+B]; any number of times" },
    { .name = "set",
      GP_PARAM_FIELD(net_options, set),
      .help =
          "edit: LAYER.setting=value, input.normalization=, input.scale=, input.offset=, input.size=; any "
          "number of times" },
    { .name = "data",
      GP_PARAM_FIELD(net_options, data),
      .help = "edit: a source, for --classes auto and the classes' names" },
    { .name = "head-learn-rate-factor",
      GP_PARAM_FIELD(net_options, head_factor),
      .fallback = 1,
      .max = 1e6,
      .help = "edit: of the new head's weights and biases" },
    { .name = "freeze-up-to",
      GP_PARAM_FIELD(net_options, freeze_up_to),
      .help = "edit: learn-rate factors of 0 for this layer and all before it" },
    { .name = "class-names",
      GP_PARAM_FIELD(net_options, class_names),
      .help = "edit: name the outputs, A,B,... or FILE.txt with one name per line; data are matched by these "
              "names" },
    { .name = "unfreeze",
      GP_PARAM_FIELD(net_options, unfreeze),
      .help = "edit: learn-rate factors of 1 for all layers" },
    CLI_JSON_PARAM(net_options),
    CLI_COMMON_PARAMS(net_options),
    { 0 },
};

static const cli_verb net_verbs[] = {
    { "show", 1, 1, net_show },
    { "list", 0, 0, net_list },
    { "get", 1, 1, net_get },
    { "edit", 1, 1, net_edit },
    { 0 },
};

const cli_command cli_command_model = {
    .name = "model",
    .summary =
        "networks: those that have names; layers, parameters, multiply-adds and memory of one; trained ones",
    .usage = "show NETWORK [--input CxHxW] [--classes N] [--mini-batch-size B] | list | get NAME|URL "
             "[--sha256 SUM] | edit NETWORK [--remove-last N] [--add LAYER] [--classes K|auto] ... -o OUT",
    .examples =
        "  gradpool model list\n"
        "  gradpool model show lenet\n"
        "  gradpool model show googlenet:form=caffe --classes 10 --mini-batch-size 32\n"
        "  gradpool model show model.onnx --json\n"
        "  gradpool model get resnet18\n"
        "  gradpool model get https://example.org/models/net.onnx --sha256 SUM\n"
        "  gradpool model edit alexnet.onnx --remove-last 2 "
        "--add fc:55,weight-learn-rate-factor=10,bias-learn-rate-factor=20 -o head55.onnx\n"
        "  gradpool model edit animals.onnx --classes auto --data vehicles/ --freeze-up-to pool2 -o "
        "vehicles.onnx\n"
        "  gradpool model edit elsewhere.onnx --set input.normalization=0..1 --class-names cat,dog -o "
        "ours.onnx\n",
    .options = net_params,
    .options_bytes = sizeof(net_options),
    .words_max = 2,
    .verbs = net_verbs,
};
