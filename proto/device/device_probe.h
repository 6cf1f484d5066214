/* List the GPUs through a child process.
 *
 * Driver libraries can hang, crash, and break fork() after their first call. So only the child
 * `gradpool-worker --probe` loads them; it prints a device list (device_list.h) and exits. */
#ifndef GP_DEVICE_PROBE_H
#define GP_DEVICE_PROBE_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/text/json.h"
#include "proto/device/device_list.h"

/* Timeouts. Loading a driver, or the engine's libraries for the first time, can take seconds. */
enum { GP_DEVICE_PROBE_MS = 10000, GP_DEVICE_SELFTEST_MS = 60000 };

/* Return whether a GPU driver may be installed: GRADPOOL_NVML_LIBRARY or GRADPOOL_CUDA_LIBRARY is
 * set, or a driver's device node or folder exists. Takes microseconds. */
bool gp_device_probe_needed(void);

/* Run `program --probe` and wait up to timeout_ms for the device list. If gp_device_probe_needed()
 * returns false, return an empty list with source "none" at once. *out is unchanged on failure.
 *
 * GP_ETIMEDOUT: no answer in time; the probe was killed.
 * GP_EIO: the probe crashed (the error names the signal), failed, or could not be started.
 * GP_EPROTO: malformed output.
 *
 * CPU workers remain usable in all these cases, and most error texts say so. */
gp_status gp_device_probe(gp_device_list *out, const char *program, int timeout_ms, gp_error *err);

/* Run `program --selftest`, which tests the GPU engine and its libraries on the devices, and return
 * the JSON report (worker/daemon/gpu_selftest.h) in *out. The caller frees *out. Errors as for
 * gp_device_probe(). */
gp_status gp_device_selftest(gp_json **out, const char *program, int timeout_ms, gp_error *err);

#endif
