/* Find the folder of a sweep that the command line names. */
#ifndef GP_CLI_SWEEP_FIND_H
#define GP_CLI_SWEEP_FIND_H

#include "client/cli/cli.h"
#include "client/sweep/sweep_folder.h"

/* Get the folder of a sweep.
 *   word  a folder, the number of a job of the pool, or a job of a cluster (PROFILE:ID)
 * A word that names no job is returned as it is. GP_ENOENT: the job is no sweep, or has not begun.
 * GP_EUNSUPPORTED: the files of the job are on another host. */
gp_status sweep_find_folder(char out[SWEEP_PATH_MAX], const cli_call *call, const char *word, gp_error *err);

/* In a background job, let the job folder lead to a sweep in another folder. */
void sweep_link_folder(const sweep_folder *folder);

#endif
