/* Requests of the user to a sweep: files in the folder inbox/ of the sweep.
 *
 *   inbox/00000193a1b2c3d4-4711.json      {"values": {"lr": 0.1}} or {"retry": 7}
 *   inbox/00000193a1b2c3d4-4711.refused   why the controller refused the request
 *
 * A request appears by rename, so it is complete. The controller appends a line with the number of
 * the request to the journal, and removes the file when the line is durable. A controller that is
 * killed in between finds the number in the journal and only removes the file. So a request becomes
 * exactly one trial, whichever process is killed. */
#ifndef GP_SWEEP_INBOX_H
#define GP_SWEEP_INBOX_H

#include "client/sweep/sweep_folder.h"

enum { SWEEP_REQUEST_BYTES = 48, SWEEP_REQUEST_FILE_MAX = 64 << 10 };

/* Put a request into the inbox.
 *   values  point to run, as JSON; NULL: retry the trial `retry`
 *   number  set to the number of the request
 * GP_EIO. */
gp_status sweep_inbox_put(const sweep_folder *folder, const char *values, uint32_t retry,
                          char number[SWEEP_REQUEST_BYTES], gp_error *err);

/* Set `path` to the file of a request.
 *   kind  ".json" or ".refused" */
void sweep_inbox_path(const sweep_folder *folder, const char *number, const char *kind,
                      char path[SWEEP_PATH_MAX + 100]);

/* Pass all requests to the state machine, the oldest first, and remove the files that it took.
 *   feed  processes an event and makes its lines durable. false: the journal failed */
void sweep_inbox_take(const sweep_folder *folder, const sweep *core,
                      bool (*feed)(void *context, sweep_event event), void *context);

#endif
