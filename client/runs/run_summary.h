/* Summary of a run: options, state and results. */
#ifndef GP_RUNS_RUN_SUMMARY_H
#define GP_RUNS_RUN_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/text/json.h"

enum { RUN_NOTE_BYTES_MAX = 4096 };

/* A run. Numbers that the run does not have are NaN or 0. Free it with run_summary_deinit(). */
typedef struct run_summary {
    uint64_t number; /* in the index; 0: not from the index */
    char *folder;    /* without trailing slashes */
    char began[32];  /* ISO 8601, UTC; "": unknown */
    char network[512], data[512];
    /* "running", "completed", "stopped", "stopped early", "failed", "killed": the process ended
     * without a result, "queued": the job on a cluster waits for its next attempt, or "unreadable":
     * a file that decides about the state cannot be read, or is malformed */
    const char *state;
    char reason[GP_ERROR_MESSAGE_MAX]; /* of a failed or unreadable run */
    char *note;                        /* NULL: none */
    int64_t workers, batch, steps, steps_per_epoch, epochs, max_epochs;
    double loss;                            /* of the last step */
    double validation_loss, accuracy, rmse; /* of the last validation; accuracy: 0 to 1 */
    double seconds, images_per_second;
    gp_json *command; /* job.json */
} run_summary;

/* Read the summary of a folder. A running training is read up to the last line. An unreadable run
 * is no error, and has the values that can be read.
 * GP_ENOENT: the folder does not exist, or is not a run folder. */
gp_status run_summary_read(run_summary *out, const char *folder, gp_error *err);
void run_summary_deinit(run_summary *summary);

/* Return the effective value of a training option as text in `text`. NULL: the run has no such
 * option. */
const char *run_summary_option(const run_summary *summary, const char *name, char *text, size_t bytes);

/* A validation of a run. */
typedef struct run_point {
    uint64_t step;
    uint32_t epoch;
    double seconds, loss, accuracy;
} run_point;

/* Read all validations of a run. *out is owned by the caller (gp_free()). */
gp_status run_points_read(run_point **out, size_t *count, const char *folder, gp_error *err);

/* Write the note of a run; "" removes it. GP_ELIMIT: longer than RUN_NOTE_BYTES_MAX. */
gp_status run_note_write(const char *folder, const char *note, gp_error *err);

#endif
