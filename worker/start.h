/* start.h -- the body of main(): the command line, the device, then the control thread.
 *
 *   gradpool-worker --probe                      print the machine's GPUs as JSON (proto/device_list.h)
 *   gradpool-worker --pool NAME --index N --incarnation N --device cpu|UUID [--cores LIST] [--shared]
 *                   [--device-name TEXT] [--device-ordinal N] [--claim-wait MS]
 *
 * The spawner sets, for a GPU worker, CUDA_VISIBLE_DEVICES=UUID and CUDA_DEVICE_ORDER=PCI_BUS_ID, and makes standard
 * error the worker's log file.  Exit codes: control.h; 2 = the command line was wrong. */
#ifndef GP_START_H
#define GP_START_H

#include "worker/backend/backend.h"

/* gp_worker_main -- returns the exit code.  cpu, cuda: the backend of each kind of device; NULL = this build has
 * none, and a worker on such a device joins excluded. */
int gp_worker_main(int count, char **arguments, const gp_backend_ops *cpu, const gp_backend_ops *cuda);

#endif
