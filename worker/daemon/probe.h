/* probe.h -- the command `gradpool-worker --probe`: list the GPUs of this machine.
 *
 * The command runs in a separate short-lived process: driver libraries may hang or crash, and must
 * not be loaded into a process that forks later. Other code calls gp_device_probe()
 * (proto/device/device_probe.h), which runs this command. proto/device/device_list.h describes the
 * JSON output.
 *
 * Two sources are tried in order:
 *
 *   1. NVML (libnvidia-ml.so.1, or GRADPOOL_NVML_LIBRARY): needs no CUDA context; reports MIG
 *   and processes.
 *   2. The CUDA driver (libcuda.so.1, or GRADPOOL_CUDA_LIBRARY), if NVML is missing or fails.
 *
 * For a card in MIG mode the list has the instances, each as a device. NVML ignores
 * CUDA_VISIBLE_DEVICES, so gp_probe_filter() applies the variable by the CUDA rules: entries are
 * ordinals (in PCI order), UUIDs or unique UUID prefixes; the first entry that matches no device
 * ends the list. */
#ifndef GP_PROBE_H
#define GP_PROBE_H

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "proto/device/device_list.h"

/* Fill *out with the devices found. Never fails: problems are reported in out->note. */
void gp_probe_run(gp_device_list *out);

/* Query one source. false: the source cannot list devices; out->note has the reason. */
bool gp_probe_nvml(gp_device_list *out);
bool gp_probe_cuda(gp_device_list *out);

/* Remove the devices that CUDA_VISIBLE_DEVICES hides. visible: value of the variable; NULL: keep
 * all. */
void gp_probe_filter(gp_device_list *list, const char *visible);

/* Load the GPU engine (plugin.h) if there are devices, without using a device. If the engine
 * cannot run here, or does not fit the driver version, store the error as the reason of every
 * device that has none yet. */
void gp_probe_engine(gp_device_list *list);

/* List the devices as JSON on standard output and return the exit code. */
int gp_probe_main(void);

/* Write the text to `output` and exit with code 0. Return 1 if the write fails. */
int gp_probe_answer(int output, const gp_buffer *text);

#endif
