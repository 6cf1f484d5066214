/* device_holder.h -- who of this user's workers holds a device, as the claim's file says (worker/process/claim.h).
 *
 * For listings and for telling our own processes from others' on a card; only the lock on the file decides. */
#ifndef GP_DEVICE_HOLDER_H
#define GP_DEVICE_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/device/device_list.h"

enum { GP_DEVICE_CLAIM_NAME = 120, GP_DEVICE_CLAIM_RECORD = 160 };

typedef struct gp_device_holder {
    uint32_t pid, worker; /* worker: its index in the pool, from 1 */
    char pool[GP_DEVICE_POOL];
} gp_device_holder;

/* The name of a device's file in the device folder: characters that file names cannot have become '_'. */
void gp_device_claim_name(char out[GP_DEVICE_CLAIM_NAME], const char *uuid);

/* gp_device_claim_read -- what a claim's record says; false: nothing that can be understood. */
bool gp_device_claim_read(gp_device_holder *out, const char *record);
int gp_device_claim_write(char record[GP_DEVICE_CLAIM_RECORD], const gp_device_holder *holder);

/* gp_device_held -- *out is the worker that holds the device; false: none does, or it is gone. */
bool gp_device_held(gp_device_holder *out, const char *device_dir, const char *uuid);

/* gp_device_list_holders -- fill pool and worker of every device of the list. */
void gp_device_list_holders(gp_device_list *list, const char *device_dir);

/* gp_device_left_out -- whether `--devices auto` does without the device, and why: none can compute on it (its reason);
 * processes compute there that are neither workers of ours nor run by one, and more than a tenth of its memory is taken; a screen is driven by it,
 * and there is another one to take. */
bool gp_device_left_out(const gp_device_list *list, uint32_t index, char *why, size_t bytes);

#endif
