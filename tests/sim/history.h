/* history.h -- what was asked, begun, ended and seen, one entry after the other, and whether that may be.
 *
 * The same checks for simulated and for real runs.  An *operation* is a submit: (session, seq); what it became is a
 * *thing* with an id (a job's number, a call of a team).  Entries come in the order in which they happened:
 *
 *   submit   session seq              somebody asked; again with the same seq after an answer was lost
 *   accept   session seq id [limit]   acknowledged as that thing; it may be begun `limit` times (0 = no limit said)
 *   start    id attempt               it is begun
 *   finish   id attempt outcome       the attempt has come to its end (0 = well) and has said so
 *   cancel   id                       somebody asked for its end
 *   end      id outcome               somebody was told that it has ended, and how (jobs: the state; tasks: gp_status)
 *   result   session seq id outcome   its owner has the result
 *   missing  id                       somebody looked, and it was not there
 *   forget   id                       it ended long ago, and by the rule it may be forgotten
 *   void     session                  its owner died, and by the rule what it had asked for with it
 *
 * The checks: what is acknowledged stays there and, when all is over, has ended; one submit is one thing and a number is
 * never used again; a session's numbers come without a gap; nothing is begun after its end was told, after it
 * finished well, or more often than it may; an end never changes; a result is seen once, and a good one only of what
 * finished well. */
#ifndef GP_HISTORY_H
#define GP_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum history_kind {
    HISTORY_SUBMIT,
    HISTORY_ACCEPT,
    HISTORY_START,
    HISTORY_FINISH,
    HISTORY_CANCEL,
    HISTORY_END,
    HISTORY_RESULT,
    HISTORY_MISSING,
    HISTORY_FORGET,
    HISTORY_VOID,
    HISTORY_KINDS,
} history_kind;

typedef struct history_entry {
    history_kind kind;
    int64_t at_ns; /* CLOCK_MONOTONIC of the machine, or simulated; for sorting and sentences */
    uint64_t session, seq, id;
    uint32_t attempt; /* start, finish; of accept: the limit */
    int32_t outcome;
} history_entry;

typedef struct history_rules {
    bool attempts_grow; /* each start of a thing has a larger attempt; else at least not a smaller one */
    bool gapless;       /* a session's first submits are numbered one by one */
    bool
        finish_binds; /* finish is what the service has recorded: nothing is begun after a good one.  False: it is what
                         * the work itself says, which may be killed before that is recorded */
    int32_t good; /* the outcome of an end or a result that says that it went well */
} history_rules;

typedef struct history history;

history *history_new(const history_rules *rules);
void history_free(history *h);
void history_clear(history *h);

/* history_add -- one more.  False: it must not be; history_failure() has the sentence, and nothing is checked any more. */
bool history_add(history *h, const history_entry *entry);
/* All is over: what was acknowledged has ended, or was forgotten.  False as above. */
bool history_close(history *h);
const char *history_failure(const history *h);
/* The name of the check that failed, "" = none. */
const char *history_check(const history *h);

typedef struct history_counts {
    uint64_t of[HISTORY_KINDS];
    uint64_t again; /* starts beyond the first */
} history_counts;
history_counts history_get_counts(const history *h);

/* ---- real runs: a line for each entry, in a file that many processes append to ---- */

/* One write; at_ns is filled in if it is 0.  False: errno. */
bool history_append(const char *path, history_entry entry);
/* All lines, sorted by time, through history_add().  False as there, or the file cannot be read. */
bool history_read(history *h, const char *path);

#endif
