/* parfor inputs: ranges, lists, lines of a file, and all combinations of them.
 *
 *   1:100   0:0.25:1   10:-1:1      FIRST:LAST, FIRST:STEP:LAST; decimals are exact
 *   a,b,c                           a list
 *   lr=0.01,0.1   seed=1:5          either form with a name
 *
 * Several sources produce every combination; the last source varies fastest. A file is always the
 * first source. It is read on demand, so it may be endless. */
#ifndef GP_CLI_INPUTS_H
#define GP_CLI_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    INPUTS_SOURCES_MAX = 16,            /* sources per command */
    INPUTS_VALUE_BYTES_MAX = 128 << 10, /* kernel limit for one argument (MAX_ARG_STRLEN) */
    INPUTS_NAME_BYTES_MAX = 64,         /* longest input name, with the terminating NUL */
    INPUTS_LIST_MAX = 1 << 20,          /* values in a list */
};

typedef struct cli_inputs cli_inputs;

/* Parse the input words and open the file.
 *   words       inputs in the forms above
 *   file        --arg-file; NULL: none, "-": standard input
 *   null_ended  values in the file end with NUL instead of newline
 *
 * GP_EINVAL: malformed input. GP_ELIMIT: too many inputs or digits. GP_EIO: cannot open the
 * file. */
gp_status inputs_new(cli_inputs **out, const char *const *words, int count, const char *file, bool null_ended,
                     gp_error *err);
void inputs_free(cli_inputs *inputs); /* accepts NULL */

/* Return the source count; inputs NULL: 0. */
int inputs_sources(const cli_inputs *inputs);

/* Return a source name; "": unnamed. */
const char *inputs_name(const cli_inputs *inputs, int source);

/* Return the combination count. UINT64_MAX: unknown, because there is a file. */
uint64_t inputs_count(const cli_inputs *inputs);

/* Result of inputs_next(). */
typedef enum inputs_state {
    INPUTS_VALUES, /* a combination was returned */
    INPUTS_WAIT,   /* no line is available yet; poll inputs_fd() */
    INPUTS_END,    /* there are no more combinations */
} inputs_state;

/* Get the next combination without blocking: one value per source, valid until the next call.
 *
 * GP_ELIMIT: a line is too long for an argument. GP_EINVAL: a line contains a NUL byte. GP_EIO:
 * cannot read the file. */
gp_status inputs_next(cli_inputs *inputs, inputs_state *state, const char *const **values, gp_error *err);

/* Return the input file for poll(). -1: there is no file, or it was read to the end. */
int inputs_fd(const cli_inputs *inputs);

#endif
