/* `gradpool model list`: zoo networks with their settings. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/model/model_verbs.h"
#include "client/cli/show.h"
#include "common/base/text/json.h"
#include "common/data/download/get.h"
#include "common/model/graph/netspec.h"

/* Return whether `model get` knows a pretrained network by this name. */
static bool is_trained(const char *name)
{
    for (const gp_get_set *set = gp_get_models; set->name != NULL; set++)
        if (strcmp(set->name, name) == 0)
            return true;
    return false;
}

gp_status net_list(cli_call *call, gp_error *err)
{
    const bool json = ((const net_options *)call->options)->common.json;
    json_document document;
    gp_zoo_info info;
    char shape[64];
    gp_json_writer *writer = show_json_array(&document);

    for (size_t i = 0; gp_zoo_describe(i, &info); i++) {
        gp_shape_format(&info.input, shape, sizeof(shape));
        if (!json)
            printf("%-18s %-10s %5" PRIu32 " classes  %s%s\n", info.name, shape, info.classes, info.about,
                   is_trained(info.name) ? "; trained: model get" : "");
        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "name", info.name);
        gp_json_put_text(writer, "about", info.about);
        gp_json_put_text(writer, "input", shape);
        gp_json_put_integer(writer, "classes", info.classes);
        gp_json_put_bool(writer, "trained", is_trained(info.name));
        gp_json_begin_array(writer, "settings");
        for (const gp_param *param = info.settings; param->type != GP_PARAM_NONE; param++) {
            gp_json_put_text(writer, NULL, param->name);
            if (!json) {
                /* Print a setting, e.g. "form=torchvision|caffe [torchvision]: ...". */
                unsigned char scratch[512];
                gp_param one[2] = { *param, { 0 } };
                char words[160] = "", fallback[40];

                one[0].offset = 0;
                gp_params_default(one, scratch);
                for (int k = 0; param->type == GP_PARAM_WORD && param->words[k] != NULL; k++) {
                    size_t used = strlen(words);

                    snprintf(words + used, sizeof(words) - used, "%s%s", k == 0 ? "" : "|", param->words[k]);
                }
                if (param->type == GP_PARAM_I64 || param->type == GP_PARAM_F64)
                    snprintf(words, sizeof(words), "%g..%g", param->min, param->max);
                printf("    %s=%s [%s]  %s\n", param->name,
                       param->type == GP_PARAM_BOOL ? "true|false" : words,
                       gp_params_format(one, scratch, fallback, sizeof(fallback)), param->help);
            }
        }
        gp_json_end_array(writer);
        gp_json_end_object(writer);
    }
    if (json)
        return show_json_print(&document, err);
    gp_buffer_deinit(&document.text);
    return GP_OK;
}
