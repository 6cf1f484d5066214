/* Engine `command`: see command.c. */
#ifndef GP_CLUSTER_COMMAND_H
#define GP_CLUSTER_COMMAND_H

#include "client/cluster/engine.h"

extern const cluster_engine cluster_engine_command;

/* Time limit of one command of the user; tests shorten it. */
extern int cluster_command_timeout_ms;

#endif
