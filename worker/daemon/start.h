/* start.h -- gradpool-worker startup: parse the command line, open the device, run the control
 * thread.
 *
 *   gradpool-worker --probe                      print the GPUs of this machine as JSON
 *                                                (device_list.h)
 *   gradpool-worker --selftest                   test the GPU engine and print JSON
 *                                                (gpu_selftest.h)
 *   gradpool-worker --pool NAME --index N --incarnation N --device cpu|UUID [--cores LIST]
 *   [--shared]
 *                   [--device-name TEXT] [--device-ordinal N] [--claim-wait MS]
 *
 * The process that spawns a GPU worker sets CUDA_VISIBLE_DEVICES=UUID and
 * CUDA_DEVICE_ORDER=PCI_BUS_ID, and redirects standard error to the worker log. control.h lists
 * the exit codes; 2: invalid command line. */
#ifndef GP_START_H
#define GP_START_H

#include "worker/backend/backend.h"

/* Get the backend for one device kind. Called once, after the worker has claimed such a device. On
 * failure the worker joins the pool as excluded and reports the error as the reason. */
typedef gp_status (*gp_backend_source)(const gp_backend_ops **out, gp_error *err);

/* Run the worker and return the exit code. */
int gp_worker_main(int count, char **arguments, gp_backend_source cpu, gp_backend_source cuda);

#endif
