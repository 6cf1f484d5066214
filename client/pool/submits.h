/* submits.h -- which submits of one call are to be sent now, and whose answer came: no sockets, no clock of its own.
 *
 * A call hands over `count` jobs under one key, numbered from 0.  At most `window` are without an answer.  When the
 * scheduler died, submits_again() makes those be sent once more that were sent and not answered; what was answered is on
 * the scheduler's disk and is never sent again.  The next scheduler knows a repeated submit by its key and number for as
 * long as it keeps the job, a minute after its end at least, so a submit is repeated only within `patience_ms`
 * after the last answer: later nobody could say whether it would be another job. */
#ifndef GP_SUBMITS_H
#define GP_SUBMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct submits {
    uint64_t *jobs; /* by number; 0 = not answered.  The caller's */
    size_t count, window;
    int64_t patience_ms;
    size_t answered;
    size_t *order; /* the numbers, as they were sent since the scheduler was dialled last */
    size_t sent;   /* so many of `order` */
    size_t next;   /* no smaller number is to be sent */
    size_t waiting;
    int64_t heard_ms; /* when something was answered last, or the call began */
} submits;

/* jobs: [count], all 0.  GP_ENOMEM. */
gp_status submits_init(submits *s, uint64_t *jobs, size_t count, size_t window, int64_t patience_ms,
                       int64_t now_ms, gp_error *err);
void submits_deinit(submits *s);

/* True: *number is to be sent; submits_sent() says that it was. */
bool submits_next(submits *s, size_t *number);
void submits_sent(submits *s, size_t number);

/* The answer to what was sent as the place-th, from 0, since the last submits_again().  Others, and second ones, are ignored. */
void submits_answered(submits *s, uint64_t place, uint64_t job, int64_t now_ms);

/* The scheduler is another. */
void submits_again(submits *s);

bool submits_done(const submits *s);
/* Nothing was answered for so long that nothing may be sent any more. */
bool submits_late(const submits *s, int64_t now_ms);

#endif
