/* The engine "slurm": jobs of a Slurm cluster. */
#ifndef GP_CLUSTER_SLURM_H
#define GP_CLUSTER_SLURM_H

#include "client/cluster/engine.h"

extern const cluster_engine cluster_engine_slurm;

#endif
