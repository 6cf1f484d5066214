/* device.h -- a worker's compute device and CPU cores. */
#ifndef GP_WORKER_DEVICE_H
#define GP_WORKER_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/message/messages.h"

/* This worker's device and cores. */
typedef struct gp_worker_device {
    gp_device_kind kind; /* CPU or CUDA */
    char uuid[96];       /* "cpu-0-3", or the GPU UUID */
    char name[96];
    uint32_t ordinal; /* CUDA ordinal; 0 for a CPU */
    int *cores;       /* [core_count] core numbers, owned */
    uint32_t core_count;
    char cores_text[64]; /* "0-3"; empty if shared */
    bool shared;         /* other processes use the cores too: do not pin or spin */
    int claim;           /* descriptor from claim.h; -1: none */
    char excluded[200];  /* reason why the worker does no work; "": not excluded */
} gp_worker_device;

/* Device parameters from the command line; strings are borrowed. */
typedef struct gp_worker_device_options {
    const char *device; /* "cpu" or a GPU UUID */
    const char *name;   /* GPU name as probed by the scheduler; NULL: unknown */
    uint32_t ordinal;
    const char *cores; /* "0-3,8"; NULL: all cores that the process may use */
    bool shared;
    int claim_wait_ms;
    const char *pool, *device_dir; /* for the claim */
    uint32_t index;
} gp_worker_device_options;

/* Determine the cores, pin the calling thread to them unless they are shared, and claim the GPU.
 * Threads created later inherit the pinning. If the claim fails, the function still succeeds and
 * the worker joins the pool as excluded. GP_EINVAL: `cores` is malformed, or this process may
 * not use the cores. Release *out with gp_worker_device_close(). */
gp_status gp_worker_device_open(gp_worker_device *out, const gp_worker_device_options *options,
                                gp_error *err);
void gp_worker_device_close(gp_worker_device *device);

/* Parse a core list such as "0-3,8" into an ascending array without duplicates. Free *out with
 * gp_free(). GP_EINVAL: malformed list, or a core number of GP_CORES_MAX or more. */
gp_status gp_cores_parse(int **out, uint32_t *count, const char *text, gp_error *err);

#endif
