/* `gradpool model` subcommands: options and functions. */
#ifndef GP_CLI_MODEL_H
#define GP_CLI_MODEL_H

#include "client/cli/cli.h"
#include "common/model/graph/kind.h"

/* Options for all subcommands. */
typedef struct net_options {
    cli_common common;
    char input[40], url[512], sha256[80], classes[24];
    int64_t batch;
    int solver; /* gp_solver */
    /* Options for edit. --add and --set can be repeated; the edit reads all values from the command
     * line. */
    char out[512], data[512], add[512], set[GP_LAYER_SETTINGS_BYTES], remove_from[64], freeze_up_to[64];
    int64_t remove_last;
    double head_factor[2];
    char class_names[4096];
    bool unfreeze;
} net_options;

/* Run a subcommand. call->words[1] is the network, if the subcommand has
 * one. */
gp_status net_list(cli_call *call, gp_error *err);
gp_status net_show(cli_call *call, gp_error *err);
gp_status net_get(cli_call *call, gp_error *err);
gp_status net_edit(cli_call *call, gp_error *err);

#endif
