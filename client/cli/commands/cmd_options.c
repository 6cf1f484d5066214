/* `gradpool options`: list all training options with their names in MATLAB and PyTorch. */
#include <stddef.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "common/base/text/json.h"
#include "common/model/train_options.h"

typedef struct options_options {
    cli_common common;
} options_options;

static const gp_param options_params[] = {
    CLI_JSON_PARAM(options_options),
    CLI_COMMON_PARAMS(options_options),
    { 0 },
};

static const char *type_word(const gp_param *param)
{
    switch (param->type) {
    case GP_PARAM_BOOL:
        return "yes or no";
    case GP_PARAM_I64:
        return "whole number";
    case GP_PARAM_F64:
        return "number";
    case GP_PARAM_WORD:
        return "word";
    default:
        return "text";
    }
}

static gp_status options_run(cli_call *call, gp_error *err)
{
    const bool json = ((const options_options *)call->options)->common.json;
    gp_train_options defaults;
    json_document document;
    gp_json_writer *writer = show_json_array(&document);
    show_table *table = json ? NULL : show_table_new(5, "option\tdefault\tMATLAB\tPyTorch\tmeaning");

    gp_params_default(gp_train_options_table, &defaults);
    for (const gp_param *param = gp_train_options_table; param->type != GP_PARAM_NONE; param++) {
        const char *none = json ? "" : "-", *alias = param->alias == NULL ? "" : param->alias;
        const char *matlab = param->seed_name == NULL ? none : param->seed_name;
        const char *torch = param->torch_name == NULL ? none : param->torch_name;
        char value[80];

        gp_params_format(param, &defaults, value, sizeof(value));
        show_cells(table, "--%s%s%s\t%s\t%s\t%s\t%s", param->name, alias[0] != '\0' ? ", --" : "", alias,
                   value, matlab, torch, param->help);
        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "name", param->name);
        gp_json_put_text(writer, "alias", alias);
        gp_json_put_text(writer, "type", type_word(param));
        gp_json_put_text(writer, "default", value);
        gp_json_put_text(writer, "unit", param->unit == NULL ? "" : param->unit);
        gp_json_put_text(writer, "matlab", matlab);
        gp_json_put_text(writer, "pytorch", torch);
        gp_json_put_text(writer, "help", param->help);
        gp_json_end_object(writer);
    }
    show_table_print_free(table);
    if (json)
        return show_json_print(&document, err);
    gp_buffer_deinit(&document.text);
    return GP_OK;
}

const cli_command cli_command_options = {
    .name = "options",
    .summary = "list all training options with default, MATLAB name and PyTorch name",
    .usage = "[--json]",
    .description =
        "List the options of `gradpool train` that describe the training, with the default, the names in "
        "MATLAB and PyTorch, and the meaning. The names are also those of gp_train_options in C.",
    .examples = "  gradpool options\n",
    .options = options_params,
    .options_bytes = sizeof(options_options),
    .run = options_run,
};
