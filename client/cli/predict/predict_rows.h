/* predict_rows.h -- predictions into a file as they come: CSV, JSON lines or an array of NumPy's. */
#ifndef GP_CLI_PREDICT_ROWS_H
#define GP_CLI_PREDICT_ROWS_H

#include <stdio.h>

#include <gradpool/gradpool.h>

#include "common/base/memory/buffer.h"
#include "common/base/system/file.h"

enum { ROWS_TOP_MAX = 100 };

typedef enum rows_form { ROWS_CSV, ROWS_JSON, ROWS_ARRAY } rows_form;

/* The destination of rows: standard output, or a draft (file.h), which is either complete or not there. */
typedef struct rows {
    char path[512]; /* "": standard output */
    gp_file_draft draft;
    bool terminal; /* standard output is one: names are cleaned */
    FILE *file;    /* buffers writes to a duplicate of draft.fd */
    rows_form form;
    uint32_t top;   /* classes in a row, best first; 0: the scores of all */
    uint64_t count; /* rows written */
    gp_error error; /* the first that a row met; code GP_OK: none */
    gp_buffer line;
    /* Of an array. */
    char shape[64];   /* "<f4, 3, 8": type and what stands behind the number of samples */
    uint8_t *classes; /* of a sample's pixels */
    uint64_t size[2]; /* height and width of them */
    /* The sample of each row, beside an array some of whose samples may be missing; NULL: none may. */
    FILE *index;
    char index_path[520];
    gp_file_draft index_draft;
} rows;

/* The form that the suffix of `path` names; "" and what is no regular file: CSV.
 * GP_EINVAL: another suffix. */
gp_status rows_form_of(rows_form *out, const char *path, gp_error *err);

/* gp_status of opening; closed by rows_close() after a success.
 *   gaps  samples may be missing: beside an array FILE.npy there is FILE.index.npy, int64, which sample each row is of */
gp_status rows_open(rows *out, const char *path, rows_form form, uint32_t top, bool gaps, gp_error *err);

/* One row, of sample p->index.  False: r->error says why. */
bool rows_add(rows *r, const gp_prediction *p);

/* End the file: complete if status is GP_OK, else removed.  Returns status, or what went wrong here or in a row. */
gp_status rows_close(rows *r, gp_status status, gp_error *err);

#endif
