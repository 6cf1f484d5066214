/* probe.h -- which GPUs this machine has, asked of the driver: the body of `gradpool-worker --probe`.
 *
 * For a process of its own that exits afterwards: the driver's libraries may hang or crash, and must not be
 * loaded in a process that forks later.  Everyone else calls gp_device_probe() (proto/device/device_probe.h), which
 * runs this; the JSON it prints is described in proto/device/device_list.h.
 *
 *   1. NVML (libnvidia-ml.so.1, or GRADPOOL_NVML_LIBRARY): needs no CUDA context and knows MIG and processes.
 *   2. the CUDA driver (libcuda.so.1, or GRADPOOL_CUDA_LIBRARY) where NVML is missing or fails.
 *
 * A card in MIG mode is listed as its instances, each a device.  NVML ignores CUDA_VISIBLE_DEVICES, so the list is
 * intersected with it here, by the CUDA rules: ordinals (in PCI order), UUIDs or their unique beginnings; the first
 * entry that names nothing ends the list. */
#ifndef GP_PROBE_H
#define GP_PROBE_H

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "proto/device/device_list.h"

/* gp_probe_run -- fill *out.  Never fails: what went wrong is out->note. */
void gp_probe_run(gp_device_list *out);

/* The two sources.  Each returns false when it cannot answer, with the reason in out->note. */
bool gp_probe_nvml(gp_device_list *out);
bool gp_probe_cuda(gp_device_list *out);

/* gp_probe_filter -- keep what CUDA_VISIBLE_DEVICES (visible; NULL = all) lets through. */
void gp_probe_filter(gp_device_list *list, const char *visible);

/* gp_probe_engine -- where there are devices, load the GPU engine (plugin.h): what keeps it from running becomes the reason
 * of every device that has none yet, and versions that do not fit together are said as such.  Touches no device. */
void gp_probe_engine(gp_device_list *list);

/* gp_probe_main -- run, print the JSON on standard output, return the exit code. */
int gp_probe_main(void);

/* gp_probe_answer -- the end of a process that looked at devices: the whole text goes to output.  Returns 1, or not at all. */
int gp_probe_answer(int output, const gp_buffer *text);

#endif
