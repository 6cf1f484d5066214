/* start.h -- the body of main(): the command line, the device, then the control thread.
 *
 *   gradpool-worker --probe                      print the machine's GPUs as JSON (proto/device/device_list.h)
 *   gradpool-worker --examine                    print what the GPU engine does here as JSON (examine.h)
 *   gradpool-worker --pool NAME --index N --incarnation N --device cpu|UUID [--cores LIST] [--shared]
 *                   [--device-name TEXT] [--device-ordinal N] [--claim-wait MS]
 *
 * The spawner sets, for a GPU worker, CUDA_VISIBLE_DEVICES=UUID and CUDA_DEVICE_ORDER=PCI_BUS_ID, and makes standard
 * error the worker's log file.  Exit codes: control.h; 2 = the command line was wrong. */
#ifndef GP_START_H
#define GP_START_H

#include "worker/backend/backend.h"

/* Where the backend of a kind of device comes from.  Called once, in a worker on such a device that has claimed it.
 * A failure is no end: the worker joins excluded, with the error's words as the reason. */
typedef gp_status (*gp_backend_source)(const gp_backend_ops **out, gp_error *err);

/* gp_worker_main -- returns the exit code. */
int gp_worker_main(int count, char **arguments, gp_backend_source cpu, gp_backend_source cuda);

#endif
