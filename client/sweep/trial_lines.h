/* Journal of a sweep, trials.jsonl: one JSON object per line, which is appended and never changed.
 *
 *   {"event": "asked", "trial": 7, "how": "bayes", "values": {"lr": 0.01}}
 *   {"event": "asked", "trial": 8, "how": "retry", "of": 7, "request": "1-2", "values": {"lr": 1}}
 *   {"event": "asked", "trial": 9, "how": "confirm", "of": 7, "repeat": 1, "values": {"lr": 0.01}}
 *   {"event": "attempt", "trial": 7, "attempt": 2, "lost": true}
 *   {"event": "rung", "trial": 7, "epoch": 3, "value": 0.71, "stop": true}
 *   {"event": "stop", "trial": 7}
 *   {"event": "halt"}
 *   {"event": "end", "trial": 7, "state": "done", "epochs": 9, "value": 0.9012, "text": ""}
 *
 * A controller that is killed may leave a torn last line, and a power failure may leave NUL bytes:
 * bytes after the last newline are no line. */
#ifndef GP_TRIAL_LINES_H
#define GP_TRIAL_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"

enum {
    SWEEP_LINE_BYTES_MAX = 64 << 10,
    SWEEP_TEXT_MAX = 200,                /* length of a reason; longer ones are truncated */
    SWEEP_JOURNAL_BYTES_MAX = 256 << 20, /* size of a journal that is read */
};

typedef enum sweep_line_kind {
    SWEEP_LINE_ASKED,   /* trial, how, values, of, repeat, request */
    SWEEP_LINE_ATTEMPT, /* trial, attempt, lost */
    SWEEP_LINE_RUNG,    /* trial, epoch, value, stop */
    SWEEP_LINE_STOP,    /* trial */
    SWEEP_LINE_HALT,    /* attempts without an end are interrupted */
    SWEEP_LINE_END,     /* trial, state, epoch, value, text */
    SWEEP_LINE_KINDS,
} sweep_line_kind;

/* States of a trial; only the final ones are in the journal. */
typedef enum sweep_state {
    SWEEP_ASKED, /* waits for the journal, or for a slot */
    SWEEP_SUBMITTED,
    SWEEP_RUNNING,
    SWEEP_STOPPING,
    SWEEP_DONE, /* the first final state */
    SWEEP_STOPPED,
    SWEEP_FAILED,
    SWEEP_LOST,
    SWEEP_STATES,
} sweep_state;

typedef struct sweep_line {
    sweep_line_kind kind;
    uint32_t trial, attempt, epoch;
    double value; /* NaN: none */
    bool stop, lost;
    sweep_state state;
    const char *how, *values, *text; /* borrowed; values: a JSON object */
    uint32_t of, repeat;             /* the trial whose point this is; number of the repeat; 0: none */
    const char *request;             /* of the user (sweep_inbox.h); NULL or "": none */
} sweep_line;

/* Return the name of a state, such as "done". */
const char *sweep_state_word(sweep_state state);

/* Append a line, including the newline. GP_EINVAL: values are no JSON object. GP_ELIMIT: the line
 * is longer than SWEEP_LINE_BYTES_MAX. */
gp_status sweep_line_encode(gp_buffer *out, const sweep_line *line, gp_error *err);

/* Decode the lines of a journal and call `each` for each one, in order. The texts of a line are
 * valid during the call.
 *   kept  set to the number of bytes up to the last newline; cut the file there before appending
 * GP_ECORRUPT: a malformed line; the message has its number. Otherwise the status of `each`. */
gp_status sweep_lines_decode(const char *text, size_t bytes, size_t *kept,
                             gp_status (*each)(void *context, const sweep_line *line, gp_error *err),
                             void *context, gp_error *err);

#endif
