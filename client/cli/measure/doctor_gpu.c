/* GPU checks for `gradpool doctor`. */
#include "client/cli/measure/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/device/device_holder.h"

/* slower than 5 GB/s: the transfer uses host memory, or the slot has one lane */
#define SLOW_PEER 5e9

/* Map an NVML or driver error message to a suggested fix. */
static const char *driver_fix(const char *said, bool container)
{
    if (strstr(said, "code 18") != NULL || strstr(said, "code 803") != NULL ||
        strstr(said, "mismatch") != NULL)
        return "the driver library and kernel module have different versions: restart the machine, or remove "
               "libcuda from the container";
    if (strstr(said, "code 9)") != NULL || strstr(said, "Not Loaded") != NULL)
        return "run modprobe nvidia; if it fails, see dmesg";
    if (strstr(said, "no reply") != NULL || strstr(said, "signal") != NULL)
        return "restart the machine; nvidia-bug-report.sh collects data for a report to NVIDIA";
    if (container)
        return "start the container with --gpus all (NVIDIA Container Toolkit), with "
               "NVIDIA_DRIVER_CAPABILITIES=compute,utility";
    return "install or repair the driver of your distribution: nvidia-smi must work";
}

/* ---- GPU engine ---- */

/* Compare the engine's CUDA version with the version supported by the driver. */
static void check_versions(doctor *d, const gp_json *examined)
{
    long long driver = gp_json_integer(gp_json_member(examined, "driver"), 0);
    long long runtime = gp_json_integer(gp_json_member(examined, "runtime"), 0);
    bool fits = driver / 1000 >= runtime / 1000;

    snprintf(d->versions, sizeof(d->versions), "%.159s",
             gp_json_text(gp_json_member(examined, "versions"), ""));
    if (d->versions[0] != '\0')
        doctor_add(d, DOCTOR_OK, "GPU engine", NULL, "%s", d->versions);
    if (runtime == 0)
        return;
    if (driver == 0)
        doctor_add(d, DOCTOR_FAILURE, "driver and runtime", "install the driver; nvidia-smi must work",
                   "there is no driver; the engine was built with CUDA %lld.%lld", runtime / 1000,
                   runtime % 1000 / 10);
    else
        doctor_add(d, fits ? DOCTOR_OK : DOCTOR_FAILURE, "driver and runtime",
                   fits
                       ? NULL
                       : "update the driver (580 or newer for CUDA 13), or build gradpool with an older CUDA",
                   "the driver supports CUDA %lld.%lld, the engine was built with %lld.%lld", driver / 1000,
                   driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

/* Report whether the test kernel computed correct results on each device. */
static void check_kernels(doctor *d, const gp_json *devices)
{
    char what[48];

    for (size_t i = 0; gp_json_is_array(devices) && i < gp_json_count(devices); i++) {
        const gp_json *device = gp_json_element(devices, i);
        const char *problem = gp_json_text(gp_json_member(device, "problem"), "");

        snprintf(what, sizeof(what), "a kernel on cuda:%lld",
                 (long long)gp_json_integer(gp_json_member(device, "ordinal"), 0));
        if (problem[0] == '\0')
            doctor_add(d, DOCTOR_OK, what, NULL, "same results as on the host");
        else
            doctor_add(d, DOCTOR_FAILURE, what, "check the card: dmesg | grep Xid, nvidia-smi -q -d ECC",
                       "%s", problem);
    }
}

/* Report transfers between devices: failed, indirect, slow. */
static void check_peers(doctor *d, const gp_json *peers)
{
    uint32_t slow = 0, detours = 0, failed = 0, count = 0;
    const char *said = "";

    for (size_t i = 0; gp_json_is_array(peers) && i < gp_json_count(peers); i++) {
        const gp_json *peer = gp_json_element(peers, i);
        int64_t from = gp_json_integer(gp_json_member(peer, "from"), -1);
        int64_t to = gp_json_integer(gp_json_member(peer, "to"), -1);
        const char *problem = gp_json_text(gp_json_member(peer, "problem"), "");

        if (from < 0 || to < 0 || from >= DOCTOR_PEERS_MAX || to >= DOCTOR_PEERS_MAX)
            continue;
        count++;
        d->devices = from >= d->devices ? (uint32_t)from + 1 : d->devices;
        d->devices = to >= d->devices ? (uint32_t)to + 1 : d->devices;
        d->peer[from][to] = gp_json_number(gp_json_member(peer, "bytes_per_second"), 0);
        d->direct[from][to] = gp_json_bool(gp_json_member(peer, "direct"), false);
        if (problem[0] != '\0')
            said = problem;
        failed += problem[0] != '\0';
        detours += !d->direct[from][to];
        slow += problem[0] == '\0' && d->peer[from][to] < SLOW_PEER;
    }
    if (count == 0)
        return;
    if (failed != 0)
        doctor_add(d, DOCTOR_FAILURE, "GPU peer copies",
                   "see nvidia-smi topo -p2p rw; in a virtual machine the cards must share a switch",
                   "%" PRIu32 " of %" PRIu32 " paths fail: %.150s", failed, count, said);
    else if (detours != 0 || slow != 0)
        doctor_add(
            d, DOCTOR_WARNING, "GPU peer copies",
            "disable ACS and the IOMMU in the firmware or the hypervisor; nvidia-smi topo -m shows the paths",
            "%" PRIu32 " of %" PRIu32 " paths use host memory, %" PRIu32 " are slower than 5 GB/s", detours,
            count, slow);
    else
        doctor_add(d, DOCTOR_OK, "GPU peer copies", NULL, "%" PRIu32 " paths, all direct", count);
}

void doctor_gpu_check(doctor *d, const gp_device_list *list, const char *problem, bool driver_there,
                      bool container, const gp_json *examined)
{
    const char *said = problem[0] != '\0' ? problem : list->note;
    uint32_t usable = 0;
    char what[48], why[GP_DEVICE_REASON + 80];

    if (!driver_there) {
        doctor_add(d, DOCTOR_NOTE, "GPUs", NULL, "no NVIDIA driver; workers use CPU cores");
        return;
    }
    if (problem[0] != '\0' || list->source == GP_DEVICES_FROM_NONE) {
        doctor_add(d, DOCTOR_FAILURE, "driver", driver_fix(said, container), "%s",
                   said[0] == '\0' ? "no reply" : said);
        return;
    }
    doctor_add(d, list->source == GP_DEVICES_FROM_NVML ? DOCTOR_OK : DOCTOR_WARNING, "driver",
               list->source == GP_DEVICES_FROM_NVML ? NULL
               : container ? "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
                           : "install the driver's libnvidia-ml.so.1",
               "%s%s%s", list->driver, list->note[0] != '\0' ? "; " : "", list->note);

    for (uint32_t i = 0; i < list->count; i++) {
        const gp_device *device = &list->devices[i];

        snprintf(what, sizeof(what), "GPU %" PRIu32, device->index);
        usable += device->reason[0] == '\0';
        if (device->reason[0] != '\0')
            doctor_add(d, DOCTOR_WARNING, what, "the pool does not use it", "%s: %s", device->name,
                       device->reason);
        else if (gp_device_left_out(list, i, why, sizeof(why)))
            doctor_add(d, DOCTOR_WARNING, what, NULL, "%s: %s", device->name, why);
        else if (device->pool[0] != '\0')
            doctor_add(d, DOCTOR_OK, what, NULL, "%s, held by worker %" PRIu32 " of pool %s", device->name,
                       device->worker, device->pool);
        else
            doctor_add(d, DOCTOR_OK, what, NULL, "%s%s", device->name, device->mig ? ", MIG instance" : "");
    }
    if (usable == 0)
        doctor_add(d, DOCTOR_FAILURE, "GPUs",
                   list->count == 0 ? "nvidia-smi -L lists them; CUDA_VISIBLE_DEVICES may hide them"
                                    : "see the reason for each GPU above",
                   list->count == 0 ? "no GPU found by the driver" : "none of %" PRIu32 " is usable",
                   list->count);
    if (examined == NULL)
        return;
    check_versions(d, examined);
    if (gp_json_text(gp_json_member(examined, "problem"), "")[0] != '\0')
        doctor_add(d, DOCTOR_FAILURE, "GPU engine",
                   "build gradpool on a host with CUDA, cuDNN and NCCL, or add them to LD_LIBRARY_PATH", "%s",
                   gp_json_text(gp_json_member(examined, "problem"), ""));
    check_kernels(d, gp_json_member(examined, "devices"));
    check_peers(d, gp_json_member(examined, "peers"));
}
