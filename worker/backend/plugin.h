/* plugin.h -- the seam behind which a GPU's libraries stay out of the daemon.
 *
 * The daemon links no CUDA library.  Where a driver and a device are, it loads `libgradpool_cuda.so` (from
 * GRADPOOL_CUDA_PLUGIN, else ../lib beside the executable, else the library path), which links cuDNN, cuBLASLt,
 * NCCL and the CUDA runtime, and takes one table from it.  Anything else is one clear log line and the CPU. */
#ifndef GP_PLUGIN_H
#define GP_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "worker/backend/backend.h"

/* Grows with every change of a struct that crosses the seam. */
#define GP_PLUGIN_ABI    5u
#define GP_PLUGIN_SYMBOL "gp_plugin_entry"

enum { GP_PLUGIN_GROUP_ID_BYTES = GP_GROUP_ID_BYTES };

typedef struct gp_plugin_device {
    uint32_t ordinal;
    char name[96], uuid[96];
    uint32_t major, minor;              /* compute capability */
    uint64_t memory_total, memory_free; /* bytes */
} gp_plugin_device;

/* From one device to another. */
typedef struct gp_plugin_peer {
    bool direct;             /* without a detour through the host's memory */
    double bytes_per_second; /* of large copies, measured */
} gp_plugin_peer;

typedef struct gp_plugin { /* all slots required; checked on loading */
    uint32_t abi;
    const char *name;     /* "cuda" */
    const char *versions; /* "CUDA 13.0, cuDNN 9.19.0, cuBLASLt 13.1.0, NCCL 2.28.9": as linked */
    const gp_backend_ops *backend;
    /* CUDA's versions, 13000 for 13.0: the newest that the driver takes (0: there is no driver), and the one that the
     * plugin was built with.  Touches no device. */
    gp_status (*driver)(uint32_t *driver, uint32_t *runtime, gp_error *err);
    /* GP_ENODEV: no driver, one that is too old, or no device; in words. */
    gp_status (*device_count)(uint32_t *count, gp_error *err);
    gp_status (*device)(uint32_t ordinal, gp_plugin_device *out, gp_error *err);
    /* Run a kernel and compare with the host; GP_EINTERNAL when they differ. */
    gp_status (*self_test)(uint32_t ordinal, gp_error *err);
    /* Takes 2 x 64 MiB for some milliseconds. */
    gp_status (*peer)(uint32_t from, uint32_t to, gp_plugin_peer *out, gp_error *err);
    /* What the ranks of an NCCL communicator share. */
    gp_status (*group_id)(uint8_t id[GP_PLUGIN_GROUP_ID_BYTES], gp_error *err);
} gp_plugin;

/* The one symbol a plugin exports. */
typedef const gp_plugin *(*gp_plugin_entry_fn)(void);

/* gp_plugin_load -- load and check; never unloaded.  path NULL = the places above.
 * GP_ENOENT: no such library, or one it needs is missing (the loader's words).  GP_EVERSION: another ABI; both named.
 * GP_EPROTO: not a plugin of ours, or a slot is empty. */
gp_status gp_plugin_load(const gp_plugin **out, const char *path, gp_error *err);

/* gp_plugin_load_device -- load, and require at least one device. */
gp_status gp_plugin_load_device(const gp_plugin **out, const char *path, gp_error *err);

#endif
