/* unit.h -- a call in flight, and the containers of such calls: lists, queues by priority, a heap of deadlines.
 *
 * Where a unit goes is decided in dispatch.h. */
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
    UNIT_OVER, /* it ends here, without a worker: given by dispatch_next_over() */
    UNIT_ENDED,
} unit_state;

/* A unit that depends on another one.  Its id tells whether the memory is still that unit. */
typedef struct unit_edge {
    struct unit_edge *next;
    team_unit *unit;
    uint64_t id;
    bool follow;
} unit_edge;

/* A call in flight.  A million of them may wait: mind its size. */
struct team_unit {
    team_unit *next, *previous; /* in the list that the state names */
    team_call call;             /* a copy */
    unsigned char in_place[CALL_IN_PLACE_MAX];
    uint64_t turn;         /* order in which units became ready */
    uint64_t position;     /* SENT: of the record in the ring */
    unit_edge *edges;      /* units that depend on this one, the last one first */
    uint32_t holds;        /* units that it depends on and that have not ended */
    uint32_t timer;        /* place in the heap, from 1; 0: none */
    uint32_t timeout_ms;   /* 0: unlimited */
    uint32_t start_ms_max; /* time to begin in; 0: unlimited */
    uint32_t grace_ms;     /* canceled: time to end in before its worker is replaced */
    float expected_ns;     /* SENT: estimated run time */
    uint16_t attempts;     /* times it was begun, without retries */
    uint16_t tries;        /* retries after errors of its own */
    uint16_t attempts_max, retries_max;
    int16_t priority;
    uint16_t status;     /* gp_status, in state OVER */
    uint8_t worker;      /* SENT: where; then where it was last; 0: never sent */
    uint8_t wish;        /* this worker only; 0: any */
    uint8_t needs;       /* GP_NEEDS_... */
    uint8_t state;       /* unit_state */
    uint8_t loss;        /* team_loss */
    bool urgent : 1;     /* before everything else of its worker */
    bool canceled : 1;   /* asked to end while it ran */
    bool run_timed : 1;  /* its timer is that of timeout_ms */
    bool orphan : 1;     /* a unit that it depends on failed; the payload is a text that says so, or NULL */
    bool over_limit : 1; /* canceled because of timeout_ms */
    bool is_future : 1;  /* of type gp_future */
};

typedef struct unit_list {
    team_unit *first, *last;
} unit_list;

void unit_list_append(unit_list *list, team_unit *unit);
void unit_list_prepend(unit_list *list, team_unit *unit);
void unit_list_remove(unit_list *list, team_unit *unit);

/* Units by priority, highest first, then in the order of coming.  Zero-initialise. */
typedef struct unit_queue {
    uint64_t used[UNIT_LEVEL_WORDS]; /* a bit for each level that has any */
    uint32_t used_words;             /* bit = word */
    uint32_t count;
    unit_list levels[UNIT_LEVELS];
} unit_queue;

team_unit *unit_queue_first(const unit_queue *queue); /* NULL: it is empty */
/* Add a unit: last of its priority, or (front: it was in the queue before) at its place by age. */
void unit_queue_put(unit_queue *queue, team_unit *unit, bool front);
void unit_queue_remove(unit_queue *queue, team_unit *unit);

/* Deadlines: a binary heap, at[0] is the next; each unit has at most one (team_unit.timer).  Zero-initialise. */
typedef struct unit_timer {
    int64_t when_ns;
    team_unit *unit;
} unit_timer;

typedef struct unit_timers {
    unit_timer *at;
    uint32_t count;
} unit_timers;

gp_status unit_timers_reserve(unit_timers *timers, gp_error *err); /* room for one more.  GP_ENOMEM */
void unit_timers_set(unit_timers *timers, team_unit *unit, int64_t when_ns);
void unit_timers_clear(unit_timers *timers, team_unit *unit);
void unit_timers_deinit(unit_timers *timers);

#endif
