/* Write predictions to a file as they arrive: CSV, JSON lines, or a NumPy array. */
#ifndef GP_CLI_PREDICT_ROWS_H
#define GP_CLI_PREDICT_ROWS_H

#include <stdio.h>

#include <gradpool/gradpool.h>

#include "common/base/memory/buffer.h"
#include "common/base/system/file.h"

enum { ROWS_TOP_MAX = 100 };

typedef enum rows_form { ROWS_CSV, ROWS_JSON, ROWS_ARRAY } rows_form;

/* Prediction output: standard output, or a draft file (file.h) that gets the final name only when
 * it is complete. */
typedef struct rows {
    char path[512]; /* "": standard output */
    gp_file_draft draft;
    bool terminal; /* standard output is a terminal: sanitize names */
    FILE *file;    /* buffered stream on a duplicate of draft.fd */
    rows_form form;
    uint32_t top;   /* classes per row, best first; 0: scores of all classes */
    uint64_t count; /* rows written */
    gp_error error; /* first error; code GP_OK: none */
    gp_buffer line; /* JSON line being built */
    /* Array state. */
    char shape[64];   /* data type, and dimensions after the sample count, e.g. "<f4, 3, 8" */
    uint8_t *classes; /* buffer for the pixel classes of one sample, as bytes */
    uint64_t size[2]; /* height and width of the first sample */
    /* Index file with the sample number of each row; NULL: not an array, or no sample can be
     * missing. */
    FILE *index;
    char index_path[520];
    gp_file_draft index_draft;
} rows;

/* Choose the format by the suffix of `path`. Standard output ("") and special files: CSV.
 * GP_EINVAL: unknown suffix. */
gp_status rows_form_of(rows_form *out, const char *path, gp_error *err);

/* Open the output. After success, call rows_close().
 *   path  "": standard output
 *   top   classes per row; 0: all scores
 *   gaps  samples may be missing: write FILE.index.npy (int64) next to FILE.npy, with the sample
 *         number of each row */
gp_status rows_open(rows *out, const char *path, rows_form form, uint32_t top, bool gaps, gp_error *err);

/* Write one prediction's row. false: failed; the reason is in r->error. */
bool rows_add(rows *r, const gp_prediction *p);

/* Finish the output. If `status` is GP_OK, rename the draft to the final name, otherwise delete it.
 * Return `status`, or the first error of a row or of this function. */
gp_status rows_close(rows *r, gp_status status, gp_error *err);

#endif
