/* device.h -- which device and which cores are this worker's. */
#ifndef GP_WORKER_DEVICE_H
#define GP_WORKER_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/message/messages.h"

typedef struct gp_worker_device {
    gp_device_kind kind; /* CPU or CUDA */
    char uuid[96];       /* "cpu-0-3", or the GPU's */
    char name[96];
    uint32_t ordinal; /* cuda:0; 0 for CPU */
    int *cores;       /* [core_count], owned */
    uint32_t core_count;
    char cores_text[64]; /* "0-3"; empty when shared */
    bool shared;         /* the cores are others' too: nothing is pinned, nothing spins */
    int claim;           /* claim.h; -1 = none */
    char excluded[200];  /* why it will not train; "" = it will */
} gp_worker_device;

/* What the command line says of it. */
typedef struct gp_worker_device_options {
    const char *device; /* "cpu" or a UUID */
    const char *name;   /* of a GPU, as the probe told the scheduler; NULL = not told */
    uint32_t ordinal;
    const char *cores; /* "0-3,8"; NULL = all that the process may use */
    bool shared;
    int claim_wait_ms;
    const char *pool, *device_dir; /* for the claim */
    uint32_t index;
} gp_worker_device_options;

/* gp_worker_device_open -- work out the cores, pin the calling thread (and so all it starts later) to them unless
 * they are shared, and claim the GPU.  A claim that fails is no failure: the worker joins excluded.
 * GP_EINVAL: cores is no list of cores this process may use.  Released by gp_worker_device_close(). */
gp_status gp_worker_device_open(gp_worker_device *out, const gp_worker_device_options *options,
                                gp_error *err);
void gp_worker_device_close(gp_worker_device *device);

/* gp_cores_parse -- "0-3,8" into a list, ascending and without repeats, freed by gp_free().
 * GP_EINVAL: not such a list, or a core over GP_CORES_MAX. */
gp_status gp_cores_parse(int **out, uint32_t *count, const char *text, gp_error *err);

#endif
