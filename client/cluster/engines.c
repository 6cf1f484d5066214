/* engines.c: the list of engines. */
#include "client/cluster/engine.h"

#include <string.h>

#include "client/cluster/command.h"
#include "client/cluster/kubernetes.h"
#include "client/cluster/slurm.h"
#include "client/cluster/ssh.h"

/* Ordered as shown in help. */
static const cluster_engine *const engines[] = { &cluster_engine_slurm, &cluster_engine_ssh,
                                                 &cluster_engine_kubernetes, &cluster_engine_command };

const cluster_engine *cluster_engine_at(size_t index)
{
    return index < sizeof(engines) / sizeof(engines[0]) ? engines[index] : NULL;
}

const cluster_engine *cluster_engine_find(const char *type)
{
    const cluster_engine *engine;

    for (size_t i = 0; (engine = cluster_engine_at(i)) != NULL; i++)
        if (strcmp(engine->type, type) == 0)
            return engine;
    return NULL;
}
