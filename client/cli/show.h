/* show.h -- what goes to standard output: tables for people, JSON for programs. */
#ifndef GP_CLI_SHOW_H
#define GP_CLI_SHOW_H

#include <stdint.h>
#include <stdio.h>

#include <gradpool/gradpool.h>

#include "common/base/text/json.h"
#include "proto/message/messages.h"

/* Copy text from outside (names of jobs, classes and files, messages of other processes) into out, cut to `bytes` and
 * without characters that a terminal acts on (printable.h).  Returns out. */
char *show_clean(char *out, size_t bytes, const char *text);
/* Print text from outside as one clean line. */
void show_line(FILE *file, const char *text);

/* A table whose columns are as wide as their widest cell.  Cells are copied, cut to 119 bytes and cleaned. */
typedef struct show_table show_table;
show_table *show_table_new(uint32_t columns, const char *const *titles); /* NULL: no memory */
void show_row(show_table *table, const char *const *cells);
void show_table_print_free(show_table *table); /* to standard output; accepts NULL */
void show_table_free(show_table *table);       /* accepts NULL */

/* "3 samples without a class" into text, which is returned.
 *   pixels  the targets are classes of pixels
 *   values  the targets are values */
char *show_excluded(char *text, size_t bytes, uint64_t count, bool pixels, bool values);

/* Write one field of a CSV file, quoted where necessary. */
void show_csv_field(FILE *file, const char *text);

/* A JSON document in memory: one object or one array. */
typedef struct json_document {
    gp_json_writer writer;
    gp_buffer text;
    bool array;
} json_document;

/* Open the document's object and return its writer.
 *   pretty  false: all on one line */
gp_json_writer *show_json_object(json_document *json, bool pretty);
gp_json_writer *show_json_array(json_document *json);
/* Close the document, then print it to standard output or write it to a file, and release it. If an earlier call of
 * the writer failed, return its error and print nothing. */
gp_status show_json_print(json_document *json, gp_error *err);
gp_status show_json_write(json_document *json, const char *path, gp_error *err);

/* The pool, its workers, its leases. */
void show_status(const gp_status_reply *status);

/* "jobs: 2 running, 5 queued", if there are any. */
void show_jobs_line(const gp_jobs_reply *jobs);

show_table *show_jobs_new(void);
void show_job(show_table *table, const gp_job_info *job);

#endif
