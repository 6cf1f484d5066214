/* Read rows from a CSV file (RFC 4180): quoted fields, doubled quotes, LF or CRLF line ends, and an
 * optional byte order mark. Blank lines are skipped. Fields per row and file size are limited. */
#ifndef GP_CSV_H
#define GP_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_CSV_FIELDS_MAX = 16, GP_CSV_BYTES_MAX = 1 << 30 };

/* A row. The strings stay valid until gp_csv_close(). */
typedef struct gp_csv_row {
    uint32_t line;  /* line number of the first field, from 1 */
    bool first;     /* first row in the file; may hold column names */
    uint32_t count; /* number of fields; 0: end of file */
    char *fields[GP_CSV_FIELDS_MAX];
} gp_csv_row;

/* Parser state for one file. */
typedef struct gp_csv {
    const char *name; /* file name for error messages; borrowed */
    char *text;       /* file contents and a NUL; modified in place */
    size_t bytes, at;
    uint32_t line;
    bool any; /* true after the first row */
} gp_csv;

/* Read a whole file into memory. Errors: GP_ENOENT, GP_EIO, GP_ELIMIT, GP_ENOMEM. After success,
 * release with gp_csv_close(). */
gp_status gp_csv_open(gp_csv *csv, const char *path, gp_error *err);

/* Parse text already in memory. text[bytes] must be NUL. gp_csv_close() frees `text`. */
void gp_csv_init(gp_csv *csv, const char *name, char *text, size_t bytes);
void gp_csv_close(gp_csv *csv);

/* Read the next row; row->count is 0 at the end. GP_ECORRUPT: an unclosed quote, text after a
 * closing quote, or a zero byte. GP_ELIMIT: more than GP_CSV_FIELDS_MAX fields. */
gp_status gp_csv_next(gp_csv *csv, gp_csv_row *row, gp_error *err);

#endif
