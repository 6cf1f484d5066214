/* List of GPUs, as found by `gradpool-worker --probe`, in memory and as JSON.
 *
 * The probe prints one JSON object; scheduler, worker and tests read it with
 * gp_device_list_read():
 *
 *   { "source": "nvml" | "cuda" | "none",       API used; "none": no driver library found
 *     "driver": "550.54.15",                    "": unknown
 *     "note": "...",                            reason for an omission or fallback; else ""
 *     "devices": [ {
 *         "index": 1,                           from 1, by PCI bus id, then MIG instance
 *         "ordinal": 0,                         card number in PCI order, from 0: cuda:0
 *         "uuid": "GPU-..." | "MIG-...", "name": "NVIDIA H200", "bus": "00000000:1B:00.0",
 *         "card": "GPU-...",                    card of a MIG instance; else ""
 *         "mig": false,                         MIG instances are listed as devices
 *         "memory_total": 0, "memory_used": 0,  bytes; 0: unknown
 *         "compute_capability": "9.0",          "": unknown
 *         "display": false,                     the device drives a display
 *         "compute_mode": "default",            exclusive-thread, prohibited,
 *                                               exclusive-process; "": unknown
 *         "available": true, "reason": "",      whether workers can use it, and why not
 *         "processes": 0, "pids": [ 4711 ],     compute processes; at most 8 pids
 *         "pool": "default", "worker": 1 } ] }  worker of this user that holds the device;
 *                                               "", 0: none, or not determined
 *
 * Unknown members are ignored, so the format can be extended. */
#ifndef GP_DEVICE_LIST_H
#define GP_DEVICE_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"

enum {
    GP_DEVICES_MAX = 128,   /* 16 cards with 7 MIG instances each, plus a reserve */
    GP_DEVICE_PIDS_MAX = 8, /* pids listed per device */
    GP_DEVICE_TEXT = 96,    /* size of uuid, name and card, as in gp_slot */
    GP_DEVICE_REASON = 160,
    GP_DEVICE_POOL = 64,
    GP_DEVICE_CAPABILITY_MIN = 8, /* minimum compute capability of the GPU engine: 8.0 */
    GP_DEVICE_MEMORY_MIN_MIB = 2048,
    GP_DEVICE_LIST_BYTES_MAX = 1 << 20, /* largest JSON text */
};

/* API that reported the devices. */
typedef enum gp_device_source {
    GP_DEVICES_FROM_NONE,
    GP_DEVICES_FROM_NVML,
    GP_DEVICES_FROM_CUDA
} gp_device_source;

/* Compute mode of a device; the values are those of NVML. */
typedef enum gp_compute_mode {
    GP_COMPUTE_DEFAULT,
    GP_COMPUTE_EXCLUSIVE_THREAD,
    GP_COMPUTE_PROHIBITED,
    GP_COMPUTE_EXCLUSIVE_PROCESS,
    GP_COMPUTE_UNKNOWN,
} gp_compute_mode;

/* A GPU or MIG instance. */
typedef struct gp_device {
    uint32_t index, ordinal;
    char uuid[GP_DEVICE_TEXT], name[GP_DEVICE_TEXT], card[GP_DEVICE_TEXT];
    char bus[32];
    uint64_t memory_total, memory_used; /* bytes */
    uint32_t major, minor;              /* compute capability; 0.0: unknown */
    bool mig, display;
    gp_compute_mode compute_mode;
    char reason[GP_DEVICE_REASON]; /* why workers cannot use the device; "": they can */
    uint32_t process_count;
    uint32_t pids[GP_DEVICE_PIDS_MAX]; /* 0: unknown, a process in another container */

    /* pool of the worker that holds the device (device_holder.h); "": none */
    char pool[GP_DEVICE_POOL];
    uint32_t worker;
} gp_device;

/* Device list; about 100 KiB, do not put it on a small stack. */
typedef struct gp_device_list {
    gp_device_source source;
    char driver[32];
    char note[240];
    uint32_t count;
    gp_device devices[GP_DEVICES_MAX];
} gp_device_list;

/* Append the list as one line of JSON to `out`. */
gp_status gp_device_list_write(const gp_device_list *list, gp_buffer *out, gp_error *err);

/* Parse a JSON device list. *out is unchanged on failure.
 *
 * GP_EPROTO: malformed; the error names the device and the member.
 * GP_ELIMIT: more than GP_DEVICES_MAX devices or GP_DEVICE_LIST_BYTES_MAX bytes.
 * GP_ENOMEM: out of memory. */
gp_status gp_device_list_read(gp_device_list *out, const char *text, size_t bytes, gp_error *err);

/* Set device->reason if workers cannot use the device: compute mode prohibited, compute capability
 * too low, or not enough memory. */
void gp_device_judge(gp_device *device);

/* Return whether processes other than the `count` pids in `own` compute on the device. If so, write
 * a description such as "used by pid 4711 and 2 others" to text. */
bool gp_device_busy(const gp_device *device, const uint32_t *own, uint32_t count, char *text, size_t bytes);

#endif
