/* net.h -- between the verbs of `gradpool model`: their options and functions, each in a file of its own. */
#ifndef GP_CLI_MODEL_H
#define GP_CLI_MODEL_H

#include "client/cli/cli.h"
#include "common/model/graph/kind.h"

typedef struct net_options {
    cli_common common;
    char input[40], url[512], sha256[80], classes[24];
    int64_t batch;
    int solver; /* gp_solver */
    /* of edit; add and set may be given several times and are read from the command line again */
    char out[512], data[512], add[512], set[GP_LAYER_SETTINGS_BYTES], remove_from[64], freeze_up_to[64];
    int64_t remove_last;
    double head_factor[2];
    char class_names[4096];
    bool unfreeze;
} net_options;

/* words[1], where there is one, is the verb's. */
int net_list(cli_call *call);
int net_show(cli_call *call);
int net_get(cli_call *call);
int net_edit(cli_call *call);

#endif
