/* net.h -- between the verbs of `gradpool net`: their options and functions, each in a file of its own. */
#ifndef GP_CLI_NET_H
#define GP_CLI_NET_H

#include "client/cli/cli.h"

typedef struct net_options {
    cli_common common;
    char input[40], url[512], sha256[80];
    int64_t classes, batch;
    int solver; /* gp_solver */
} net_options;

/* words[1], where there is one, is the verb's. */
int net_list(cli_call *call);
int net_show(cli_call *call);
int net_get(cli_call *call);

#endif
