/* Reader of run folders, for all commands that show trainings of other processes.
 *
 * client/cli/jobs/run_folder.h describes the files. A reader never locks or writes them, so any
 * number of readers can follow a training. */
#ifndef GP_RUNS_RUN_READER_H
#define GP_RUNS_RUN_READER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include <gradpool/gradpool.h>

#include "common/base/text/json.h"

enum {
    RUN_LINE_BYTES_MAX = 4096,        /* longer lines are skipped */
    RUN_DOCUMENT_BYTES_MAX = 1 << 18, /* size limit of job.json, facts.json and end.json */
    RUN_SEARCH_BYTES_MAX = 16 << 20,  /* about 60,000 steps */
    RUN_PATH_BYTES = PATH_MAX + 64    /* folder and file name; the kernel refuses a path that is cut */
};
#define RUN_COUNT_MAX ((int64_t)1 << 50)

/* ---- lines of metrics.jsonl ---- */

typedef enum run_line_kind {
    RUN_LINE_STEP,
    RUN_LINE_VALIDATION,
    RUN_LINE_RESCALE, /* change of the worker group */
    RUN_LINE_OTHER,   /* any other object, for example written by a program */
} run_line_kind;

/* A parsed line. Free it with run_line_deinit(). */
typedef struct run_line {
    run_line_kind kind;
    gp_json *json;
    gp_train_step step;                    /* RUN_LINE_STEP */
    gp_train_validation_result validation; /* RUN_LINE_VALIDATION */
    gp_train_rescale rescale;              /* RUN_LINE_RESCALE; points into `json` */
} run_line;

/* Parse a line without its newline. false: not a JSON object. */
bool run_line_parse(run_line *out, const char *text, size_t bytes);
void run_line_deinit(run_line *line);

/* Parse the next line of a part of a file and advance *text, or parse the last line. Malformed and
 * incomplete lines are skipped, such as the first line of the end of a file. false: no further
 * line. */
bool run_line_next(run_line *out, const char **text);
bool run_line_last(run_line *out, const char *text);

/* Read the last complete lines of a file of the folder, at most `bytes` - 1 bytes. "": no such
 * file. */
void run_tail_read(const char *folder, const char *name, char *text, size_t bytes);

/* Return whether a file ends within a line, which a killed process or a full disk leaves. */
bool run_is_torn(const char *path);

/* Read the last validation in metrics.jsonl, among the last RUN_SEARCH_BYTES_MAX bytes. Free *out
 * with run_line_deinit(). false: no line is a validation. */
bool run_validation_last(run_line *out, const char *folder);

/* Reader of the lines of a file, from the beginning. */
typedef struct run_lines run_lines;

/* Create a reader for a file of the folder; the file need not exist yet. NULL: out of memory. */
run_lines *run_lines_new(const char *folder, const char *name);
void run_lines_free(run_lines *lines); /* accepts NULL */

/* Get the next complete line, without its newline; it is valid until the next call. NULL: no
 * further line yet. The caller may call again later. */
const char *run_lines_next(run_lines *lines, size_t *bytes);

/* Get the rest of a file after run_lines_next() has returned NULL: an incomplete line, which is the
 * last one if the writer has exited. NULL: the last line is complete, or the rest is too long. */
const char *run_lines_rest(run_lines *lines, size_t *bytes);

/* Return whether the file could not be read. A file that does not exist is no error. */
bool run_lines_failed(const run_lines *lines);

/* Return whether the file was replaced since this reader opened it: a new attempt has begun, and a
 * new reader is needed. */
bool run_lines_replaced(const run_lines *lines);

/* ---- documents ---- */

/* Return a count from a line or document, between 0 and RUN_COUNT_MAX. 0: missing or out of
 * range. */
uint64_t run_count(const gp_json *object, const char *key);

/* Read a JSON file of the folder, such as "end.json"; free *out with gp_json_free(). The end.json
 * of a trial of a sweep may contain the other documents (trial_pack.h). After an error, *out is
 * NULL.
 * GP_ENOENT: missing. GP_ECORRUPT: malformed, or longer than RUN_DOCUMENT_BYTES_MAX. GP_EIO,
 * GP_ENOMEM: it may exist, but cannot be read now. */
gp_status run_document_read(gp_json **out, const char *folder, const char *name, gp_error *err);

/* Read the sizes of a training from facts.json; members that the file lacks are 0. false: the file
 * is missing or malformed. */
bool run_info_read(gp_train_info *out, const char *folder);

#endif
