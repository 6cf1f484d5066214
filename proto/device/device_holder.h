/* Find the worker of this user that holds a device, from the claim file
 * (worker/process/claim.h).
 *
 * The result serves for display, and to distinguish this user's processes on a card from others.
 * Only the lock on the claim file decides who holds the device. */
#ifndef GP_DEVICE_HOLDER_H
#define GP_DEVICE_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/device/device_list.h"

enum { GP_DEVICE_CLAIM_NAME = 120, GP_DEVICE_CLAIM_RECORD = 160 };

/* Record in a claim file. */
typedef struct gp_device_holder {
    uint32_t pid, worker; /* worker: index in the pool, from 1 */
    char pool[GP_DEVICE_POOL];
} gp_device_holder;

/* Build a device's claim file name from the UUID. Characters that are not allowed in file names
 * become '_'. */
void gp_device_claim_name(char out[GP_DEVICE_CLAIM_NAME], const char *uuid);

/* Parse or format the record in a claim file. gp_device_claim_read() returns false for a malformed
 * record; gp_device_claim_write() returns the length. */
bool gp_device_claim_read(gp_device_holder *out, const char *record);
int gp_device_claim_write(char record[GP_DEVICE_CLAIM_RECORD], const gp_device_holder *holder);

/* Set `pool` and `worker` of all devices in the list: the live worker that holds the device; "" and
 * 0: none. */
void gp_device_list_holders(gp_device_list *list, const char *device_dir);

/* Return whether `--devices auto` excludes the device, and write the reason to `why`. A device is
 * excluded if
 *
 * - workers cannot use it (gp_device.reason)
 * - processes compute on it that are neither this user's workers nor their descendants, and more
 *   than a tenth of the memory is in use
 * - it drives a display, and another device is available */
bool gp_device_left_out(const gp_device_list *list, uint32_t index, char *why, size_t bytes);

#endif
