/* Internal interface between the files of the job state machine.
 *
 *   jobs.c       events and actions     jobs_table.c  entries, indices by id and submit, lists,
 *                queue
 *   jobs_rows.c  journal rows at startup; read access */
#ifndef GP_JOBS_PARTS_H
#define GP_JOBS_PARTS_H

#include <string.h>

#include "scheduler/core/jobs.h"

enum { JOBS_NIL = 0 }; /* entry 0 is unused */

/* Reply that waits for the journal. */
typedef struct jobs_reply {
    uint64_t number;
    gp_core_id client;
    uint64_t correlation, id;
    uint32_t count;
    bool accepted, known; /* accepted: send ACCEPTED; otherwise CANCELING */
} jobs_reply;

typedef struct jobs_wait { /* heap element for a queued job */
    int32_t priority;
    uint32_t entry;
    uint64_t id;
} jobs_wait;

/* Queued jobs with a common limit on concurrent processes. */
typedef enum jobs_lane {
    JOBS_LANE_WORK, /* ordinary jobs and trials: one process per worker */
    JOBS_LANE_SWEEPS,
    JOBS_LANE_KEEPER, /* `gradpool results keep`, which runs the calls of exited programs */
    JOBS_LANES,
} jobs_lane;

typedef struct jobs_heap { /* queued jobs of a lane; items[0] is the next one to start */
    jobs_wait *items;
    uint32_t count;
} jobs_heap;

/* Ends of a linked list; JOBS_NIL: empty list. */
typedef struct jobs_ends {
    uint32_t first, last;
} jobs_ends;

struct gp_jobs {
    gp_jobs_config config;
    gp_jobs_act act;
    void *context;
    int64_t now_ms, clock_ms, pruned_ms;
    int64_t alarm_ms; /* time of the first pending SIGKILL; INT64_MAX: none */
    int64_t began_ms; /* time of the first step, or of the first step after a suspension */
    int64_t start_ms; /* no job starts before this time, because none could start */
    bool began;
    uint64_t next_id, number, persisted;
    bool holding, stopping, failed;
    gp_error failure;
    uint32_t counts[JOBS_LANES][GP_JOBS_KINDS][GP_JOBS_STATES];
    /* Entries [1, used) have been used at least once; unused ones are in the free list. */
    gp_jobs_job *entries;
    uint32_t used, size, free;
    jobs_ends lists[GP_JOBS_LISTS];
    gp_index ids, submits; /* entries by id, and by submitter and seq */
    jobs_heap heaps[JOBS_LANES];
    jobs_reply *replies; /* ring buffer, ordered by number */
    uint32_t reply_first, reply_count;
};

static inline gp_jobs_job *jobs_at(const gp_jobs *jobs, uint32_t entry)
{
    return &jobs->entries[entry];
}

/* Return the next entry in the list by id. */
static inline uint32_t jobs_next(const gp_jobs *jobs, uint32_t entry)
{
    return jobs->entries[entry].links[GP_JOBS_BY_ID].next;
}

static inline uint32_t jobs_entry(const gp_jobs *jobs, const gp_jobs_job *job)
{
    return (uint32_t)(job - jobs->entries);
}

static inline jobs_lane jobs_lane_of(gp_jobs_kind kind, const char *command)
{
    if (kind != GP_JOBS_SWEEP)
        return JOBS_LANE_WORK;
    return strcmp(command, "results keep") == 0 ? JOBS_LANE_KEEPER : JOBS_LANE_SWEEPS;
}

/* ---- jobs_table.c ---- */

/* Allocate both indices. Call this after the entries exist. False: out of memory. */
bool jobs_tables_init(gp_jobs *jobs);

/* Create an entry with id, submitter, seq, kind and command, append it to the list by id and zero
 * all other fields. NULL: the table is full. */
gp_jobs_job *jobs_take(gp_jobs *jobs, uint64_t id, const uint8_t submitter[16], uint64_t seq,
                       gp_jobs_kind kind, const char *command);

/* Free an entry and remove it from all lists, indices and the heap. */
void jobs_give(gp_jobs *jobs, gp_jobs_job *job);

/* Find a job by id, or by submitter and sequence number. NULL: no such job. */
gp_jobs_job *jobs_find_id(const gp_jobs *jobs, uint64_t id);
gp_jobs_job *jobs_find_submit(const gp_jobs *jobs, const uint8_t submitter[16], uint64_t seq);

/* Change the state and update the counts per state. */
void jobs_set_state(gp_jobs *jobs, gp_jobs_job *job, gp_jobs_state state);

/* Move the job to the end of the GP_JOBS_WRITTEN list. */
void jobs_dirty(gp_jobs *jobs, gp_jobs_job *job);

/* Remove the job from the GP_JOBS_WRITTEN list, if it is there. */
void jobs_clean(gp_jobs *jobs, gp_jobs_job *job);

/* Append the job to the list of ended jobs for its kind. */
void jobs_done(gp_jobs *jobs, gp_jobs_job *job);

/* Add a queued job to the heap of its lane, unless it is there already. */
void jobs_heap_push(gp_jobs *jobs, gp_jobs_job *job);
/* Remove a job from its heap, if it is queued there. */
void jobs_heap_remove(gp_jobs *jobs, gp_jobs_job *job);

/* Return the next queued job of a lane. NULL: none. */
gp_jobs_job *jobs_heap_peek(const gp_jobs *jobs, jobs_lane lane);

/* Remove the next queued job of a lane from the heap, and return it. NULL: none. */
gp_jobs_job *jobs_heap_pop(gp_jobs *jobs, jobs_lane lane);

/* ---- jobs_rows.c ---- */

/* Return the number of jobs of a lane that have a process or are about to get one. */
uint32_t jobs_lane_active(const gp_jobs *jobs, jobs_lane lane);

#endif
