/* Standard output of commands: tables for people, JSON for programs. */
#ifndef GP_CLI_SHOW_H
#define GP_CLI_SHOW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <gradpool/gradpool.h>

#include "common/base/text/json.h"
#include "proto/message/messages.h"

/* Copy untrusted text (job, class and file names, messages from other processes) to `out`. Truncate
 * to `bytes`, between two characters, and replace characters that a terminal would interpret
 * (printable.h). Return `out`. */
char *show_clean(char *out, size_t bytes, const char *text);

/* Return the byte count of the part of a line that fits in `columns` of a terminal. A wide
 * character (East Asian, emoji) takes two columns, and a combining character none. */
size_t show_cut(const char *line, uint32_t columns);

/* Return whether a stream is a terminal that can be redrawn: TERM is set and not "dumb". */
bool show_can_redraw(FILE *out);

/* Get the terminal size; 80x24: unknown. */
void show_terminal_size(FILE *out, uint32_t *width, uint32_t *height);

/* Print untrusted text as one sanitized line. */
void show_line(FILE *file, const char *text);

/* Text table; each column is as wide as its widest cell on a terminal. Cells are copied,
 * truncated to 119 bytes between two characters, and sanitized. */
typedef struct show_table show_table;
/* Create a table with the given titles, separated by tabs; show_cells() appends missing ones. NULL:
 * out of memory. */
show_table *show_table_new(uint32_t columns, const char *titles);
/* Append cells, separated by tabs in `format`; a full row is followed by the next one.
 * Conversions are those of printf() with modifier `l` or none, but no `*` for width or
 * precision. Without memory, or if `table` is NULL, do nothing. */
void show_cells(show_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void show_table_write(const show_table *table, FILE *out); /* accepts NULL */
void show_table_print_free(show_table *table);             /* prints to standard output; accepts NULL */
void show_table_free(show_table *table);                   /* accepts NULL */

/* Format a count of unlabelled items, e.g. "3 samples without a class". Return `text`.
 *   pixels  targets are classes of pixels
 *   values  targets are numbers */
char *show_excluded(char *text, size_t bytes, uint64_t count, bool pixels, bool values);

/* Write one CSV field, quoted if necessary. */
void show_csv_field(FILE *file, const char *text);

/* JSON document in memory: one object or one array. */
typedef struct json_document {
    gp_json_writer writer;
    gp_buffer text;
    bool array;
} json_document;

/* Open a document whose root is an object, and return the writer.
 *   pretty  false: print on one line */
gp_json_writer *show_json_object(json_document *json, bool pretty);

/* Open a pretty-printed document whose root is an array, and return the writer. */
gp_json_writer *show_json_array(json_document *json);

/* Close the document and release it: print it to standard output, or write it to a file. The last
 * function does not wait for the disk; see gp_file_write_record(). If an earlier call of the writer
 * failed, return that error and output nothing. */
gp_status show_json_print(json_document *json, gp_error *err);
gp_status show_json_write(json_document *json, const char *path, gp_error *err);
gp_status show_json_write_record(json_document *json, const char *path, gp_error *err);

/* Print the pool, its use, the workers and the leases.
 *   before  earlier state, so that the use is that of the time in between; NULL: since the start of
 *           the processes */
void show_status(const gp_status_reply *status, const gp_status_reply *before);

/* Print the pool as JSON.
 *   jobs  NULL: without jobs */
gp_status show_status_json(const gp_status_reply *status, const gp_jobs_reply *jobs, gp_error *err);

/* Print a job as one line of JSON, followed by `end`. */
void show_job_json(const gp_job_info *job, const char *end);

/* Print "jobs: 2 running, 5 queued", if there are jobs. */
void show_jobs_line(const gp_jobs_reply *jobs);

/* Create a table of jobs; NULL: out of memory. show_job() appends a row. */
show_table *show_jobs_new(void);
void show_job(show_table *table, const gp_job_info *job);

#endif
