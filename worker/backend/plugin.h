/* Loads the GPU plugin, which keeps the CUDA libraries out of the worker daemon.
 *
 * The worker links no CUDA library. On hosts with a driver and a device it loads
 * `libgradpool_cuda.so`, which links cuDNN, cuBLASLt, NCCL and the CUDA runtime and exports one
 * function table. The search order is the GRADPOOL_CUDA_PLUGIN variable, then ../lib beside the
 * executable, then the library path. If loading fails, the worker logs one line and computes on the
 * CPU. */
#ifndef GP_PLUGIN_H
#define GP_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "worker/backend/backend.h"
#include "worker/backend/profile.h"

/* Plugin interface version number. Increment it whenever a struct that the worker and the plugin
 * share changes. */
#define GP_PLUGIN_ABI    9u
#define GP_PLUGIN_SYMBOL "gp_plugin_entry"

/* Device properties. */
typedef struct gp_plugin_device {
    uint32_t ordinal;
    /* device name and UUID as the driver reports them */
    char name[96], uuid[96];
    uint32_t major, minor;              /* compute capability */
    uint64_t memory_total, memory_free; /* bytes */
} gp_plugin_device;

/* Copy path between two devices. */
typedef struct gp_plugin_peer {
    bool direct;             /* peer access, without a copy through host memory */
    double bytes_per_second; /* measured with large copies */
} gp_plugin_peer;

/* Function table of a plugin. All slots are required; gp_plugin_load() checks them. */
typedef struct gp_plugin {
    uint32_t abi;
    const char *name; /* "cuda" */
    /* versions in use, for example "CUDA 13.0, cuDNN 9.19.0, cuBLASLt 13.1.0, NCCL 2.28.9" */
    const char *versions;
    const gp_backend_ops *backend;
    /* Report two CUDA versions, as 13000 for 13.0, without touching a device.
     *   driver   newest version that the driver supports; 0: no driver
     *   runtime  version that the plugin was built with */
    gp_status (*driver)(uint32_t *driver, uint32_t *runtime, gp_error *err);
    /* Count the usable devices. GP_ENODEV: no driver, a driver that is too old, or no device; the
     * message says which. */
    gp_status (*device_count)(uint32_t *count, gp_error *err);
    /* Describe device `ordinal`. */
    gp_status (*device)(uint32_t ordinal, gp_plugin_device *out, gp_error *err);
    /* Run a kernel on the device and compare the result with the host's. GP_EINTERNAL: the results
     * differ. */
    gp_status (*self_test)(uint32_t ordinal, gp_error *err);
    /* Measure the copy path between two devices. Allocates 64 MiB on each for a few
     * milliseconds. */
    gp_status (*peer)(uint32_t from, uint32_t to, gp_plugin_peer *out, gp_error *err);
    /* Report the times of all operations of a plan in execution order, for benchmarks. The first
     * call must pass `fn` NULL, which starts the measurement. A profiled plan is slower. */
    gp_status (*profile)(gp_plan *plan, gp_profile_fn fn, void *context, gp_error *err);
} gp_plugin;

/* Type of the only symbol that a plugin exports. */
typedef const gp_plugin *(*gp_plugin_entry_fn)(void);

/* Load the plugin and check the plugin's version and function table. The library is never unloaded.
 * `path` NULL: search as described above.
 *
 * GP_ENOENT:   the library or one of its dependencies is missing; the message quotes dlerror()
 * GP_EVERSION: the plugin has another GP_PLUGIN_ABI; the message names both numbers
 * GP_EPROTO:   not a gradpool plugin, or a table slot is empty */
gp_status gp_plugin_load(const gp_plugin **out, const char *path, gp_error *err);

/* Load the plugin as gp_plugin_load() does and require at least one device. GP_ENODEV: the driver
 * shows no device. */
gp_status gp_plugin_load_device(const gp_plugin **out, const char *path, gp_error *err);

#endif
