/* Record operations and check that their history is valid.
 *
 * Simulated and real runs use the same checks. An *operation* is a submit, identified by (session,
 * seq). It creates a *thing* with an id: a job or a team call. Entries are added in chronological
 * order:
 *
 *   submit   session seq              a client sent a request; repeated after a lost reply
 *   accept   session seq id [limit]   the request was acknowledged as thing `id`, which may
 *            start `limit` times (0: unlimited)
 *   start    id attempt               an attempt started
 *   finish   id attempt outcome       an attempt finished and reported it (0: success)
 *   cancel   id                       a client requested cancellation
 *   end      id outcome               a client was notified of the end (jobs: the state; tasks:
 *            gp_status)
 *   result   session seq id outcome   the owner received the result
 *   missing  id                       a client asked for the thing, and it did not exist
 *   forget   id                       the thing ended long ago and may be deleted
 *   void     session                  the owner exited; pending requests of the session may be
 *            lost
 *
 * Checks: an acknowledged thing remains and finally ends. One submit creates one thing, and ids are
 * never reused. Sequence numbers of a session have no gaps. No attempt starts after a notified end,
 * after success, or beyond the limit. An end never changes. The owner receives each result once,
 * and a success only for a thing that finished well. */
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
    int64_t at_ns; /* CLOCK_MONOTONIC or simulated time; used for sorting and messages */
    uint64_t session, seq, id;
    uint32_t attempt; /* start, finish: attempt number; accept: limit */
    int32_t outcome;
} history_entry;

typedef struct history_rules {
    /* each start has a larger attempt number; if false, at least not a smaller one */
    bool attempts_grow;
    bool gapless; /* the first submits of a session have consecutive numbers */
    /* true: a finish entry is recorded by the service, so nothing may start after a successful one.
     * false: it comes from the work itself, which may be killed before the service records it */
    bool finish_binds;
    int32_t good; /* outcome value that means success */
} history_rules;

typedef struct history history;

/* Create an empty history. NULL: out of memory. */
history *history_new(const history_rules *rules);
void history_free(history *h);
void history_clear(history *h);

/* Add an entry and check it. False: invalid; history_failure() has the message, and all checks
 * stop. */
bool history_add(history *h, const history_entry *entry);

/* Check that all acknowledged things have ended or were deleted. False: invalid, as for
 * history_add(). */
bool history_close(history *h);

/* Return the message of the failed check. "": none. */
const char *history_failure(const history *h);

/* Return the name of the failed check. "": none. */
const char *history_check(const history *h);

typedef struct history_counts {
    uint64_t of[HISTORY_KINDS];
    uint64_t again; /* starts after the first one of a thing */
} history_counts;
history_counts history_get_counts(const history *h);

/* ---- real runs: a file with one line per entry, shared by several processes ---- */

/* Append an entry to a file with one write. at_ns is set if it is 0. False: failed, see errno. */
bool history_append(const char *path, history_entry entry);

/* Add all entries of a file, sorted by time. False: invalid history, or the file cannot be read. */
bool history_read(history *h, const char *path);

#endif
