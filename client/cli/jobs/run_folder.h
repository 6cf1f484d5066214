/* run_folder.h -- the folder that a run owns: nothing trained is ever lost.
 *
 *   gradpool-runs/2026-11-21-101530-lenet/
 *     job.json        the command, and the values of all training options
 *     facts.json      workers, shares, steps: what is known before the first step
 *     end.json        how it ended
 *     metrics.jsonl   one object a step, one a validation, one a change of the workers
 *     log             what was printed for people
 *     result/         model.onnx
 *
 * In a background job it is the job's own folder, whose job.json and log are the job's.
 * A name that is taken gets "-2", "-3", ... */
#ifndef GP_CLI_RUN_FOLDER_H
#define GP_CLI_RUN_FOLDER_H

#include <stdio.h>

#include <gradpool/gradpool.h>

#include "common/model/train_options.h"

enum { RUN_FOLDER_LEASES_MAX = 16 };

typedef struct run_folder {
    char path[512];
    FILE *metrics, *log;
    FILE *copy;          /* of metrics, where --metrics asks for one; may be NULL */
    char began[32];      /* time of the command, as in logs */
    gp_train_info facts; /* as last written */
    uint64_t leases[RUN_FOLDER_LEASES_MAX];
    uint32_t lease_count;
    uint64_t lost; /* lines of metrics that could not be written, the last because of problem (errno) */
    int problem;
} run_folder;

/* Take the time at which the run began, before it asks for a lease. */
void run_folder_start(run_folder *folder);

/* Make the folder of a run, gradpool-runs/DATE-TIME-NAME, and point gradpool-runs/latest at it.
 *   network  as given ("lenet", "/data/net.onnx", "unet:depth=2"): its base name becomes NAME
 *   argv, options  written to job.json
 *   metrics_copy   where the metrics go too; NULL: nowhere else */
gp_status run_folder_open(run_folder *folder, const char *network, int argc, char **argv,
                          const gp_train_options *options, const char *metrics_copy, gp_error *err);
/* Write facts.json, which is known before the first step: viewers in other terminals draw with it. */
void run_folder_facts(run_folder *folder, const gp_train_info *facts);
/* Each writes one line and flushes: a viewer reads by offset. */
void run_folder_step(run_folder *folder, const gp_train_step *step);
void run_folder_check(run_folder *folder, const gp_train_validation_result *check);
void run_folder_regroup(run_folder *folder, const gp_train_rescale *regroup);
/* Write the members of a finished training that end.json and `train --json` share. */
void run_folder_put_summary(gp_json_writer *writer, const gp_training_summary *summary);
/* Write how it ended (when summary or failure is given) and close the files. */
void run_folder_close(run_folder *folder, const gp_training_summary *summary, const gp_error *failure);

/* path/result/model.onnx */
void run_folder_model(const run_folder *folder, char *path, size_t bytes);

#endif
