/* device_probe.h -- ask a child process which devices there are.
 *
 * The driver's libraries hang, crash and forbid fork() after their first call, so no process of ours loads them
 * to look: `gradpool-worker --probe` does, prints a device list (device_list.h) and exits. */
#ifndef GP_DEVICE_PROBE_H
#define GP_DEVICE_PROBE_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/text/json.h"
#include "proto/device/device_list.h"

/* A driver that is being loaded can take seconds; so can the engine's libraries, the first time. */
enum { GP_DEVICE_PROBE_MS = 10000, GP_DEVICE_EXAMINE_MS = 60000 };

/* gp_device_probe_needed -- false where no driver can be: a few stat() calls, microseconds.  True when
 * GRADPOOL_NVML_LIBRARY or GRADPOOL_CUDA_LIBRARY is set, or a driver's node or folder is there. */
bool gp_device_probe_needed(void);

/* gp_device_probe -- run `program --probe` for at most timeout_ms; blocks.  Returns at once with an empty list
 * (source none) when the probe is not needed.
 * GP_ETIMEDOUT: it did not answer and was killed.  GP_EIO: it crashed (the signal is named), failed, or could not be
 * started.  GP_EPROTO: it printed something else.  In all these cases CPU workers still can be used, and the text
 * says so.  *out is unchanged on failure. */
gp_status gp_device_probe(gp_device_list *out, const char *program, int timeout_ms, gp_error *err);

/* gp_device_examine -- the same with `program --examine`: what the GPU engine and its libraries are and do here, as JSON
 * (worker/daemon/examine.h), into *out, which the caller frees.  Touches the devices. */
gp_status gp_device_examine(gp_json **out, const char *program, int timeout_ms, gp_error *err);

#endif
