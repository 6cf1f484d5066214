/* jobs_parts.h -- inside the jobs' machine.
 *
 *   jobs.c       events in, actions out           jobs_table.c  entries: found by id and by submit, listed, queued
 *   jobs_rows.c  the rows it begins with; looking */
#ifndef GP_JOBS_PARTS_H
#define GP_JOBS_PARTS_H

#include "scheduler/core/index.h"
#include "scheduler/core/jobs.h"

enum { JOBS_NIL = 0 }; /* entry 0 is nobody's */

/* An answer that waits for the journal. */
typedef struct jobs_reply {
    uint64_t number;
    gp_jobs_client client;
    uint64_t correlation, id;
    uint32_t count;
    bool accepted, known; /* accepted: ACCEPTED, else CANCELING */
} jobs_reply;

typedef struct jobs_wait { /* of the heap */
    int32_t priority;
    uint32_t entry;
    uint64_t id;
} jobs_wait;

/* Of a list; JOBS_NIL: it is empty. */
typedef struct jobs_ends {
    uint32_t first, last;
} jobs_ends;

struct gp_jobs {
    gp_jobs_config config;
    gp_jobs_act act;
    void *context;
    int64_t now_ms, clock_ms, pruned_ms;
    int64_t alarm_ms; /* the first KILL that is due; INT64_MAX = none */
    int64_t began_ms; /* the first step, or the first after it was stopped */
    bool began;
    uint64_t next_id, number, persisted;
    bool holding, stopping, failed;
    gp_error failure;
    uint32_t counts[GP_JOBS_STATES];
    /* Entries: [1, used) were used once, those of the free list are free. */
    gp_jobs_job *entries;
    uint32_t used, size, free;
    jobs_ends lists[GP_JOBS_LISTS];
    gp_index ids, submits; /* entries by id, and by submitter and seq */
    jobs_wait *heap;       /* heap[0] is the next to begin */
    uint32_t heap_count;
    jobs_reply *replies; /* a ring in the order of their numbers */
    uint32_t reply_first, reply_count;
};

static inline gp_jobs_job *jobs_at(const gp_jobs *jobs, uint32_t entry)
{
    return &jobs->entries[entry];
}

/* The entry after this one in the list of all jobs by id. */
static inline uint32_t jobs_next(const gp_jobs *jobs, uint32_t entry)
{
    return jobs->entries[entry].links[GP_JOBS_BY_ID].next;
}

static inline uint32_t jobs_entry(const gp_jobs *jobs, const gp_jobs_job *job)
{
    return (uint32_t)(job - jobs->entries);
}

/* ---- jobs_table.c ---- */

/* After entries; false: no memory. */
bool jobs_tables_init(gp_jobs *jobs);
/* Zeroed, with id, submitter and seq, last in the list by id; NULL: there is no room. */
gp_jobs_job *jobs_take(gp_jobs *jobs, uint64_t id, const uint8_t submitter[16], uint64_t seq);
void jobs_give(gp_jobs *jobs, gp_jobs_job *job);
gp_jobs_job *jobs_find_id(const gp_jobs *jobs, uint64_t id);
gp_jobs_job *jobs_find_submit(const gp_jobs *jobs, const uint8_t submitter[16], uint64_t seq);

void jobs_set_state(gp_jobs *jobs, gp_jobs_job *job, gp_jobs_state state);
/* Last in the list of what is being written; once. */
void jobs_dirty(gp_jobs *jobs, gp_jobs_job *job);
void jobs_clean(gp_jobs *jobs, gp_jobs_job *job);
/* Last in the list of the ended. */
void jobs_done(gp_jobs *jobs, gp_jobs_job *job);

void jobs_heap_push(gp_jobs *jobs, gp_jobs_job *job);
void jobs_heap_remove(gp_jobs *jobs, gp_jobs_job *job); /* if it is there */
/* The queued job that is next, taken from the heap; NULL: none. */
gp_jobs_job *jobs_heap_pop(gp_jobs *jobs);

#endif
