/* Run folder: the files of one training, kept after the run.
 *
 *   gradpool-runs/2026-11-21-101530-lenet/
 *     job.json              command line, and all training option values
 *     facts.json            network, data, workers and sizes: known before the first step
 *     end.json              final state
 *     metrics.jsonl         one JSON object per step, validation and worker group change
 *     workers.jsonl         sums of each worker over intervals of a second (worker_lines.h)
 *     events.out.tfevents*  curves for TensorBoard (run_board.h)
 *     log                   text printed for the user
 *     result/               model.onnx
 *
 * A background job without --folder uses the job's own folder, in which job.json and log belong to
 * the job. If a name is taken, "-2", "-3", ... is appended.
 *
 * A training that resumes in the folder of an earlier attempt keeps the lines up to the checkpoint,
 * so that metrics.jsonl has each step once. The writer holds the lock of the file writer.lock. */
#ifndef GP_CLI_RUN_FOLDER_H
#define GP_CLI_RUN_FOLDER_H

#include <stdio.h>

#include <gradpool/gradpool.h>

#include "client/runs/metrics_line.h"
#include "client/runs/run_board.h"
#include "client/runs/worker_lines.h"
#include "common/base/system/file.h"
#include "common/model/train_options.h"

enum { RUN_FOLDER_LEASES_MAX = 16 };

/* What to write. All pointers are borrowed. */
typedef struct run_folder_request {
    const char *network; /* as given ("lenet", "/data/net.onnx", "unet:depth=2"); names the folder */
    const char *data;    /* as given */
    int argc;
    char **argv;                     /* command line */
    const gp_train_options *options; /* effective values */
    const char *metrics_copy;        /* second file for the metrics; NULL: none */
    const char *folder;              /* folder to create or to continue; NULL: choose a new one */
    const char *state_dir;           /* state directory of the pool, for the index; NULL: no index */
    run_board_mode board;
} run_folder_request;

/* Run folder: open files and state. */
typedef struct run_folder {
    char path[512];
    run_folder_request request;
    FILE *metrics, *log;
    FILE *copy;     /* second metrics file (--metrics); NULL: none */
    bool torn[2];   /* metrics and copy may end within a line */
    gp_buffer line; /* of metrics.jsonl */
    worker_lines *workers;
    run_board *board;
    gp_file_draft end;  /* end.json; fd -1: created at the end */
    int lock;           /* writer.lock; -1: not locked */
    bool continued;     /* the folder has lines of an earlier attempt */
    bool begun;         /* a step or a validation was written */
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

/* Lock a folder that exists, before workers begin the training. A folder that does not exist is no
 * error: run_folder_open() creates it.
 *   resumes  the training resumes
 * Errors as for run_folder_open(). */
gp_status run_folder_claim(run_folder *folder, const char *path, bool resumes, gp_error *err);

/* Open the run folder: that of the job, or request->folder, or a new folder
 * gradpool-runs/DATE-TIME-NAME to which gradpool-runs/latest then points.
 *
 * GP_EBUSY: another training writes to the folder, or the folder has steps and this training does
 * not resume. GP_EINVAL: request->folder is not a run folder. */
gp_status run_folder_open(run_folder *folder, const run_folder_request *request, gp_error *err);

/* Write facts.json. Call before the first step: viewers need the planned step count. */
void run_folder_facts(run_folder *folder, const gp_train_info *info);

/* Write a step of any rank: one line of metrics.jsonl for rank 0, flushed for viewers. Call
 * run_folder_step() with the steps in order.
 *   now_ms  clock of gp_now_ms() */
void run_folder_step(run_folder *folder, const gp_train_step *step, int64_t now_ms);

/* Set memory and processor time of a worker process. Arguments: see worker_lines_usage(). */
void run_folder_usage(run_folder *folder, uint32_t worker, uint64_t cpu_ms_total, uint64_t memory_bytes);
void run_folder_validation(run_folder *folder, const gp_train_validation_result *validation);
void run_folder_regroup(run_folder *folder, const gp_train_rescale *regroup);

/* Write the members that end.json and `train --json` have in common. */
void run_folder_put_summary(gp_json_writer *writer, const gp_training_summary *summary);

/* Close the files. If `summary` or `failure` is given, write end.json first. */
void run_folder_close(run_folder *folder, const gp_training_summary *summary, const gp_error *failure);

#endif
