/* device_list.h -- what `gradpool-worker --probe` found, as a value and as JSON.
 *
 * The probe prints one JSON object; scheduler, worker and tests read it back with gp_device_list_read():
 *
 *   { "source": "nvml" | "cuda" | "none",       who answered; "none": no driver library could be loaded
 *     "driver": "550.54.15",                    "" when not known
 *     "note": "...",                            a sentence when something was left out or fell back; else ""
 *     "devices": [ {
 *         "index": 1,                           from 1, ordered by PCI bus id (instances of a card by number)
 *         "ordinal": 0,                         the card's place in PCI order, from 0: cuda:0
 *         "uuid": "GPU-..." | "MIG-...", "name": "NVIDIA H200", "bus": "00000000:1B:00.0",
 *         "card": "GPU-...",                    of a MIG instance: the card it is a part of; else ""
 *         "mig": false,                         a MIG instance counts as a device
 *         "memory_total": 0, "memory_used": 0,  bytes; 0 = not known
 *         "compute_capability": "9.0",          "" when not known
 *         "display": false,                     a screen is driven by it
 *         "compute_mode": "default",            exclusive-thread, prohibited, exclusive-process; "" when not known
 *         "available": true, "reason": "",      whether a worker can compute on it, and a sentence why not
 *         "processes": 0, "pids": [ 4711 ],     who computes on it now; at most 8 are named
 *         "pool": "default", "worker": 1 } ] }  of this user, that holds it; "" and 0: none, or not asked
 *
 * Unknown members are skipped, so the format may grow. */
#ifndef GP_DEVICE_LIST_H
#define GP_DEVICE_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"

enum {
    GP_DEVICES_MAX = 128,   /* 16 cards of 7 instances each, and some */
    GP_DEVICE_PIDS_MAX = 8, /* processes named per device */
    GP_DEVICE_TEXT = 96,    /* uuid, name, card: as in gp_slot */
    GP_DEVICE_REASON = 160,
    GP_DEVICE_POOL = 64,
    GP_DEVICE_CAPABILITY_MIN = 8, /* compute capability that the engine is built for: 8.0 */
    GP_DEVICE_MEMORY_MIN_MIB = 2048,
    GP_DEVICE_LIST_BYTES_MAX = 1 << 20, /* of the JSON */
};

typedef enum gp_device_source {
    GP_DEVICES_FROM_NONE,
    GP_DEVICES_FROM_NVML,
    GP_DEVICES_FROM_CUDA
} gp_device_source;

/* As NVML counts them. */
typedef enum gp_compute_mode {
    GP_COMPUTE_DEFAULT,
    GP_COMPUTE_EXCLUSIVE_THREAD,
    GP_COMPUTE_PROHIBITED,
    GP_COMPUTE_EXCLUSIVE_PROCESS,
    GP_COMPUTE_UNKNOWN,
} gp_compute_mode;

typedef struct gp_device {
    uint32_t index, ordinal;
    char uuid[GP_DEVICE_TEXT], name[GP_DEVICE_TEXT], card[GP_DEVICE_TEXT];
    char bus[32];
    uint64_t memory_total, memory_used; /* bytes */
    uint32_t major, minor;              /* compute capability; 0.0 = not known */
    bool mig, display;
    gp_compute_mode compute_mode;
    char reason[GP_DEVICE_REASON]; /* why no worker can compute on it; "" = one can */
    uint32_t process_count;
    uint32_t pids[GP_DEVICE_PIDS_MAX]; /* 0 = not told (another container's) */
    char pool[GP_DEVICE_POOL];         /* of the worker that holds it (device_holder.h); "" = none */
    uint32_t worker;
} gp_device;

/* About 100 KiB: not for small stacks. */
typedef struct gp_device_list {
    gp_device_source source;
    char driver[32];
    char note[240];
    uint32_t count;
    gp_device devices[GP_DEVICES_MAX];
} gp_device_list;

/* gp_device_list_write -- append the JSON, one line, to out. */
gp_status gp_device_list_write(const gp_device_list *list, gp_buffer *out, gp_error *err);

/* gp_device_list_read -- GP_EPROTO: not such a list; the text names the device and the member.  *out is unchanged
 * then.  GP_ELIMIT: more than GP_DEVICES_MAX devices or GP_DEVICE_LIST_BYTES_MAX bytes. */
gp_status gp_device_list_read(gp_device_list *out, const char *text, size_t bytes, gp_error *err);

/* gp_device_judge -- fill device->reason by what is known of it: a compute mode that forbids, a capability or a memory
 * that is too small. */
void gp_device_judge(gp_device *device);

/* gp_device_busy -- whether processes other than those of `own` (count of them) compute on the device; a sentence
 * about them ("used by pid 4711 and 2 others") goes into text when they do. */
bool gp_device_busy(const gp_device *device, const uint32_t *own, uint32_t count, char *text, size_t bytes);

#endif
