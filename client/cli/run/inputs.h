/* inputs.h -- what a parfor runs over: ranges, lists, the lines of a file, and all combinations of them.
 *
 *   1:100   0:0.25:1   10:-1:1      FIRST:LAST, FIRST:STEP:LAST; decimals are exact
 *   a,b,c                           a list
 *   lr=0.01,0.1   seed=1:5          the same with a name
 *
 * Several sources make every combination, the last varying fastest.  A file comes first: it is read as its lines are
 * needed, so it may be endless. */
#ifndef GP_CLI_INPUTS_H
#define GP_CLI_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    INPUTS_SOURCES_MAX = 16,
    INPUTS_VALUE_BYTES_MAX = 128 << 10, /* what the kernel takes for one argument */
    INPUTS_NAME_BYTES_MAX = 64,
    INPUTS_LIST_MAX = 1 << 20,
};

typedef struct cli_inputs cli_inputs;

/* inputs_new -- words as above.  file: NULL = none, "-" = standard input; null_ended: values there end with NUL,
 * not with a line's end.  GP_EINVAL, GP_ELIMIT; GP_EIO: the file cannot be opened. */
gp_status inputs_new(cli_inputs **out, const char *const *words, int count, const char *file, bool null_ended,
                     gp_error *err);
void inputs_free(cli_inputs *inputs); /* accepts NULL */

int inputs_sources(const cli_inputs *inputs);
const char *inputs_name(const cli_inputs *inputs, int source); /* "" = it has none */

/* Combinations in all; UINT64_MAX: not known, there is a file. */
uint64_t inputs_count(const cli_inputs *inputs);

typedef enum inputs_state {
    INPUTS_VALUES,
    INPUTS_WAIT, /* the file has nothing now: poll inputs_fd() */
    INPUTS_END,
} inputs_state;

/* inputs_next -- the next combination: one value for each source, valid until the next call.
 * GP_ELIMIT: a line is longer than an argument can be.  GP_EIO. */
gp_status inputs_next(cli_inputs *inputs, inputs_state *state, const char *const **values, gp_error *err);

int inputs_fd(const cli_inputs *inputs); /* -1 = no file, or at its end */

#endif
