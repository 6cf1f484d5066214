/* unit.h: a call in flight, and the containers of such calls: lists, priority queues, and a heap of
 * deadlines.
 *
 * dispatch.h decides where a unit goes. */
#ifndef GP_UNIT_H
#define GP_UNIT_H

#include "client/team/calls.h"
#include "proto/message/limits.h"

enum {
    UNIT_LEVELS = 2 * GP_PRIORITY_MAX + 1,
    UNIT_LEVEL_WORDS = (UNIT_LEVELS + 63) / 64,
};

typedef enum unit_state {
    UNIT_FREE,
    UNIT_HELD,
    UNIT_READY,
    UNIT_SENT,
    UNIT_DYING,
    UNIT_OVER, /* ended without an answer; dispatch_next_over() returns it */
    UNIT_ENDED,
} unit_state;

/* Edge to a unit that depends on another one. The id shows whether the memory still holds the same
 * unit. */
typedef struct unit_edge {
    struct unit_edge *next;
    team_unit *unit;
    uint64_t id;
    bool follow;
} unit_edge;

/* Call in flight. Up to a million may wait, so the structure must stay small. */
struct team_unit {
    /* The first 64 bytes are all that the dispatcher reads for a call without a time limit. */
    team_unit *next, *previous; /* neighbors in the list for the state */
    uint64_t turn;              /* sequence number; order in which units became ready */

    /* state SENT: position of the record in the ring; after the worker failed while it ran this
     * call: index of the running iteration of a loop chunk */
    uint64_t position;
    unit_edge *edges;  /* units that depend on this one, newest first */
    float expected_ns; /* state SENT: estimated run time */
    uint16_t attempts; /* starts, without retries */
    uint16_t tries;    /* retries after errors of the call itself */
    uint16_t attempts_max, retries_max;
    int16_t priority;
    uint16_t status;     /* gp_status, in state OVER */
    uint8_t worker;      /* current or last worker; 0: never sent */
    uint8_t wish;        /* run only on this worker; 0: any */
    uint8_t needs;       /* class of needs, see dispatch_set_class() */
    uint8_t state;       /* unit_state */
    uint8_t loss;        /* team_loss */
    bool urgent : 1;     /* precedes everything else for the worker */
    bool canceled : 1;   /* asked to end while it ran */
    bool orphan : 1;     /* a dependency failed; the payload is the error message, or NULL */
    bool over_limit : 1; /* canceled because of timeout_ms */
    bool is_future : 1;  /* part of a gp_future */

    uint32_t holds;        /* dependencies that have not ended */
    uint32_t timer;        /* position in the heap, from 1; 0: none */
    uint32_t timeout_ms;   /* 0: unlimited */
    uint32_t start_ms_max; /* time limit to start; 0: unlimited */
    uint32_t grace_ms;     /* time from a cancel, or the time limit, until the worker is replaced */
    int64_t start_by_ns;   /* deadline to start; 0: none, or started */
    team_call call;        /* copy of the call */
    unsigned char in_place[CALL_IN_PLACE_MAX];
};

typedef struct unit_list {
    team_unit *first, *last;
} unit_list;

/* Add a unit at the end or at the start of a list, or remove it. A unit is in one list at a
 * time. */
void unit_list_append(unit_list *list, team_unit *unit);
void unit_list_prepend(unit_list *list, team_unit *unit);
void unit_list_remove(unit_list *list, team_unit *unit);

/* Units by priority, highest first, then in arrival order. Initialize with zeros. */
typedef struct unit_queue {
    uint64_t used[UNIT_LEVEL_WORDS]; /* one bit per nonempty level */
    uint32_t used_words;             /* one bit per nonzero word of `used` */
    uint32_t count;
    unit_list levels[UNIT_LEVELS];
} unit_queue;

team_unit *unit_queue_first(const unit_queue *queue); /* NULL: empty */

/* Add a unit: last in its priority, or with `front` (it was in the queue before) at its position by
 * age. */
void unit_queue_put(unit_queue *queue, team_unit *unit, bool front);
void unit_queue_remove(unit_queue *queue, team_unit *unit);

/* Deadlines in a binary heap; at[0] is the next. Each unit has at most one (team_unit.timer).
 * Initialize with zeros. */
typedef struct unit_timer {
    int64_t when_ns;
    team_unit *unit;
} unit_timer;

typedef struct unit_timers {
    unit_timer *at;
    uint32_t count;
} unit_timers;

/* make room for one more; GP_ENOMEM: out of memory */
gp_status unit_timers_reserve(unit_timers *timers, gp_error *err);

/* Set or replace a unit's deadline. Without memory the deadline is dropped. */
void unit_timers_set(unit_timers *timers, team_unit *unit, int64_t when_ns);
void unit_timers_clear(unit_timers *timers, team_unit *unit);
#endif
