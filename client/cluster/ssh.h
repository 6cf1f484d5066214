/* The engine "ssh": one job at a time on each of several hosts that the user reaches by ssh. */
#ifndef GP_CLUSTER_SSH_H
#define GP_CLUSTER_SSH_H

#include "client/cluster/engine.h"

extern const cluster_engine cluster_engine_ssh;

#endif
