/* csv.h -- rows of a CSV file (RFC 4180): commas, quotes, doubled quotes, LF or CRLF, a byte order mark.
 * Blank lines are not rows.  Everything has a ceiling. */
#ifndef GP_CSV_H
#define GP_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_CSV_FIELDS_MAX = 16, GP_CSV_BYTES_MAX = 1 << 30 };

/* One row; its texts are valid until the file is closed. */
typedef struct gp_csv_row {
    uint32_t line;  /* line of the file where the row begins, from 1 */
    bool first;     /* first row of the file: column names, if it has any */
    uint32_t count; /* number of fields */
    char *fields[GP_CSV_FIELDS_MAX];
} gp_csv_row;

typedef struct gp_csv {
    const char *name; /* for errors; borrowed */
    char *text;       /* the file and a NUL; rows are cut out of it in place */
    size_t bytes, at;
    uint32_t line;
    bool any; /* a row has been read */
} gp_csv;

/* gp_csv_open -- read a file whole.  GP_ENOENT, GP_EIO, GP_ELIMIT.  Closed by gp_csv_close() after a success. */
gp_status gp_csv_open(gp_csv *csv, const char *path, gp_error *err);

/* The same over bytes that are there: text[bytes] is a NUL, and text is taken over. */
void gp_csv_init(gp_csv *csv, const char *name, char *text, size_t bytes);
void gp_csv_close(gp_csv *csv);

/* gp_csv_next -- the next row; count 0 at the end.
 * GP_ECORRUPT: a quote that never ends, text behind a closing quote, a zero byte.  GP_ELIMIT: too many fields. */
gp_status gp_csv_next(gp_csv *csv, gp_csv_row *row, gp_error *err);

#endif
