/* Index of runs: the run folders of all trainings that used a pool.
 *
 * The file runs.jsonl in the pool's state directory has one line for each run, in the order of
 * their starts:
 *
 *     {"folder": "/home/ann/gradpool-runs/2026-11-22-181203-lenet", "began": "2026-11-22T17..."}
 *
 * The number of a run is the number of its line, from 1; it never changes. The index is only a
 * list: folders may have been removed, and the state of a run is in its folder. */
#ifndef GP_RUNS_RUN_INDEX_H
#define GP_RUNS_RUN_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum { RUN_INDEX_LINE_MAX = 4096, RUN_INDEX_BYTES_MAX = 256 << 20 /* about 2 million runs */ };

/* A run in the index. */
typedef struct run_entry {
    uint64_t number;
    const char *folder; /* absolute path; valid during the call of `visit` */
    const char *began;
} run_entry;

/* Append a run; an existing entry of the folder is not looked for. An incomplete last line, which a
 * full disk or a killed process can leave, is completed first. Processes on hosts with a common
 * file system can append at the same time.
 *   state_dir  state directory of the pool, see gp_paths
 *   folder     absolute path
 * GP_ELIMIT: the path is too long, or the index is larger than RUN_INDEX_BYTES_MAX. GP_EINVAL: the
 * path is not UTF-8. GP_EIO. */
gp_status run_index_append(const char *state_dir, const char *folder, const char *began, gp_error *err);

/* Call `visit` for each run, oldest first, until it returns false. Malformed lines are skipped, but
 * counted in the numbers. Empty lines are not counted. A missing index has no runs. */
gp_status run_index_each(const char *state_dir, bool (*visit)(void *context, const run_entry *entry),
                         void *context, gp_error *err);

#endif
