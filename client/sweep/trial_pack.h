/* Pack the records of an ended trial: its end.json takes over the other small files of the run
 * folder, each of which occupies a block of the disk. run_document_read() finds them there.
 *
 *     {"state": "completed", ..., "records": {"job.json": {...}, "facts.json": {...},
 *      "workers.jsonl": [{...}, ...], "log": "..."}} */
#ifndef GP_SWEEP_TRIAL_PACK_H
#define GP_SWEEP_TRIAL_PACK_H

#include "client/sweep/sweep_folder.h"

/* Largest end.json that packing may produce: a block of most file systems. */
enum { TRIAL_PACK_BYTES_MAX = 4096 };

/* Pack the folder of a trial whose training has ended; no process may write to it. A folder whose
 * records do not fit stays as it is. Safe to repeat after a failure at any point.
 * GP_EIO: see err; no record is lost. */
gp_status trial_pack(const char *folder, gp_error *err);

/* Remove the files that an ended trial no longer needs: the checkpoints, and the model unless
 * keep_model is set. best.onnx is a separate link and stays.
 *   pack  also pack the folder; a trial that failed keeps its files for `gradpool report`
 * Errors as for trial_pack(). The file with the number of the job goes last: while it is there,
 * the controller calls this again after a restart. */
gp_status trial_clean(const sweep_folder *folder, uint32_t trial, bool keep_model, bool pack, gp_error *err);

/* Remove the model of a trial. best.onnx is a separate link and stays. */
void trial_remove_model(const sweep_folder *folder, uint32_t trial);

#endif
