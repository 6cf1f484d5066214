/* Engine `kubernetes`: one Kubernetes Job for each gradpool job, managed through kubectl. */
#ifndef GP_CLUSTER_KUBERNETES_H
#define GP_CLUSTER_KUBERNETES_H

#include "client/cluster/engine.h"

extern const cluster_engine cluster_engine_kubernetes;

/* Time limit of all commands of one call, in ms. Tests shorten it. */
extern int cluster_kubernetes_call_ms;

#endif
