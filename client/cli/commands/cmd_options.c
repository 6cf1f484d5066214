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

static int options_json(void)
{
    gp_train_options defaults;
    json_document json;

    gp_params_default(gp_train_options_table, &defaults);
    gp_json_writer *writer = show_json_array(&json);

    for (const gp_param *param = gp_train_options_table; param->type != GP_PARAM_NONE; param++) {
        char value[80];

        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "name", param->name);
        gp_json_put_text(writer, "alias", param->alias == NULL ? "" : param->alias);
        gp_json_put_text(writer, "type", type_word(param));
        gp_json_put_text(writer, "default", gp_params_format(param, &defaults, value, sizeof(value)));
        gp_json_put_text(writer, "unit", param->unit == NULL ? "" : param->unit);
        gp_json_put_text(writer, "matlab", param->seed_name == NULL ? "" : param->seed_name);
        gp_json_put_text(writer, "pytorch", param->torch_name == NULL ? "" : param->torch_name);
        gp_json_put_text(writer, "help", param->help);
        gp_json_end_object(writer);
    }
    return show_json_print(&json, NULL) == GP_OK ? CLI_OK : CLI_FAILED;
}

static int options_run(cli_call *call)
{
    gp_train_options defaults;
    show_table *table;

    if (((const options_options *)call->options)->common.json)
        return options_json();
    table = show_table_new(5, (const char *[]){ "option", "default", "MATLAB", "PyTorch", "meaning" });
    gp_params_default(gp_train_options_table, &defaults);
    for (const gp_param *param = gp_train_options_table; param->type != GP_PARAM_NONE; param++) {
        char name[80], value[80];

        snprintf(name, sizeof(name), "--%s%s%s", param->name, param->alias ? ", --" : "",
                 param->alias ? param->alias : "");
        gp_params_format(param, &defaults, value, sizeof(value));
        show_row(table, (const char *[]){ name, value, param->seed_name ? param->seed_name : "-",
                                          param->torch_name ? param->torch_name : "-", param->help });
    }
    show_table_print_free(table);
    return CLI_OK;
}

const cli_command cli_command_options = {
    .name = "options",
    .summary = "list every training option: default, MATLAB's name, PyTorch's name",
    .usage = "[--json]",
    .examples = "  gradpool options\n",
    .options = options_params,
    .options_bytes = sizeof(options_options),
    .run = options_run,
};
