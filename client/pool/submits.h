/* submits.h: track which submissions in one call to send next, and which have a reply. Pure logic,
 * without sockets or clock.
 *
 * A call submits `count` jobs under one key, numbered from 0. At most `window` of them are in
 * flight. After a scheduler failure, submits_again() marks all submissions without a reply to be
 * sent again. Submissions with a reply are on the scheduler's disk and are never repeated.
 *
 * The next scheduler recognizes a repeated submission by key and number as long as it keeps the
 * job: at least a minute after the job's end. Thus a submission is repeated only within timeout_ms
 * after it was first sent. Later it could create a second job. The time of the last reply
 * cannot be the limit: a process that was suspended reads old replies late. */
#ifndef GP_SUBMITS_H
#define GP_SUBMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct submits {
    uint64_t *jobs; /* [count] job ids by number; 0: no reply yet; owned by the caller */
    size_t count, window;
    int64_t timeout_ms;
    size_t answered;
    size_t *order; /* numbers in the order sent since the last connect */
    size_t sent;   /* entries in `order` */
    size_t next;   /* lowest number that may still have to be sent */
    size_t waiting;
    int64_t received_ms; /* time when the last reply arrived, or the call started */
    int64_t *sent_ms;    /* [count] time when each was first sent, over any connection */
    size_t begun;        /* entries in `sent_ms`: numbers are first sent in order */
} submits;

/* Start with `count` unsent submissions. jobs: [count], all 0. GP_ENOMEM: out of
 * memory. */
gp_status submits_init(submits *s, uint64_t *jobs, size_t count, size_t window, int64_t timeout_ms,
                       int64_t now_ms, gp_error *err);
void submits_deinit(submits *s);

/* Get the next submission to send in *number. After sending, call submits_sent(). Return false if
 * the window is full or nothing is left to send. */
bool submits_next(submits *s, size_t *number);

/* Record that the submission was sent at now_ms or later. */
void submits_sent(submits *s, size_t number, int64_t now_ms);

/* Record a reply.
 *   place  position of the submission, from 0, among those sent since the last submits_again()
 *   job    new job id
 * Unknown positions and repeated replies are ignored. */
void submits_answered(submits *s, uint64_t place, uint64_t job, int64_t now_ms);

/* Restart after a reconnect: send all submissions without a reply again. */
void submits_again(submits *s);

/* Return whether every submission has a reply. */
bool submits_done(const submits *s);

/* Return whether nothing may be sent any more: the last reply is too long ago, or the next
 * submission would be a repetition that comes too late. */
bool submits_late(const submits *s, int64_t now_ms);

#endif
