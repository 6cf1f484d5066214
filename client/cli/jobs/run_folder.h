/* Run folder: the files of one training, kept after the run.
 *
 *   gradpool-runs/2026-11-21-101530-lenet/
 *     job.json        command line, and all training option values
 *     facts.json      workers, batch and steps: all facts known before the first step
 *     end.json        final state
 *     metrics.jsonl   one JSON object per step, validation and worker group change
 *     log             text printed for the user
 *     result/         model.onnx
 *
 * A background job uses the job's own folder, in which job.json and log belong to the job. If a
 * name is taken, "-2", "-3", ... is appended. */
#ifndef GP_CLI_RUN_FOLDER_H
#define GP_CLI_RUN_FOLDER_H

#include <stdio.h>

#include <gradpool/gradpool.h>

#include "client/runs/metrics_line.h"
#include "common/model/train_options.h"

enum { RUN_FOLDER_LEASES_MAX = 16 };

/* Run folder: open files and state. */
typedef struct run_folder {
    char path[512];
    FILE *metrics, *log;
    FILE *copy;         /* second metrics file (--metrics); NULL: none */
    char began[32];     /* command start, formatted as in logs */
    gp_train_info info; /* facts.json contents */
    /* latest run leases, oldest first */
    uint64_t leases[RUN_FOLDER_LEASES_MAX];
    uint32_t lease_count;
    /* Lines of metrics that could not be written, and the last errno. */
    uint64_t lost;
    int problem;
} run_folder;

/* Record the run's start time. Call before requesting a lease. */
void run_folder_start(run_folder *folder);

/* Create the folder gradpool-runs/DATE-TIME-NAME and point gradpool-runs/latest at it.
 *   network        as given ("lenet", "/data/net.onnx", "unet:depth=2"); NAME is derived from it
 *   argv, options  written to job.json
 *   metrics_copy   second file for the metrics; NULL: none */
gp_status run_folder_open(run_folder *folder, const char *network, int argc, char **argv,
                          const gp_train_options *options, const char *metrics_copy, gp_error *err);

/* Write facts.json. Call before the first step: viewers need the planned step count. */
void run_folder_facts(run_folder *folder, const gp_train_info *info);

/* Append one line to metrics.jsonl and flush it for viewers.
 *   table, record  see metrics_put() */
void run_folder_metrics(run_folder *folder, const metric *table, const void *record);
void run_folder_regroup(run_folder *folder, const gp_train_rescale *regroup);

/* Write the members that end.json and `train --json` have in common. */
void run_folder_put_summary(gp_json_writer *writer, const gp_training_summary *summary);

/* Close the files. If `summary` or `failure` is given, write end.json first. */
void run_folder_close(run_folder *folder, const gp_training_summary *summary, const gp_error *failure);

#endif
