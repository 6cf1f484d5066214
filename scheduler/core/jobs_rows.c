/* Load journal rows at startup, and read access to the jobs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "scheduler/core/jobs_parts.h"

bool gp_jobs_state_ended(gp_jobs_state state)
{
    return state >= GP_JOBS_DONE;
}

const char *gp_jobs_state_word(gp_jobs_state state)
{
    static const char *const words[GP_JOBS_STATES] = { "new",  "queued", "starting", "running", "stopping",
                                                       "done", "failed", "canceled", "lost" };

    return state < GP_JOBS_STATES ? words[state] : "unknown";
}

/* ---- loading journal rows ---- */

gp_status gp_jobs_load(gp_jobs *jobs, const gp_jobs_job *row, gp_error *err)
{
    gp_jobs_job *job;

    if (row->id == 0 || row->state == GP_JOBS_NONE || row->state == GP_JOBS_STARTING ||
        row->state >= GP_JOBS_STATES || row->kind >= GP_JOBS_KINDS || jobs_find_id(jobs, row->id) != NULL ||
        jobs_find_submit(jobs, row->submitter, row->seq) != NULL)
        return gp_fail(err, GP_ECORRUPT,
                       "job %" PRIu64 " has the invalid state %d or kind %d, or is present twice", row->id,
                       (int)row->state, (int)row->kind);
    job = jobs_take(jobs, row->id, row->submitter, row->seq, row->kind, row->command);
    if (job == NULL)
        return gp_fail(err, GP_ELIMIT, "more than %u jobs", jobs->size - 1);
    jobs_set_state(jobs, job, row->state);
    memcpy(job, row, offsetof(gp_jobs_job, durable)); /* the fields that the journal stores */
    job->durable = row->state;
    job->foreign = gp_jobs_orphaned(job);
    if (job->state == GP_JOBS_QUEUED)
        jobs_heap_push(jobs, job);
    return GP_OK;
}

typedef struct jobs_end {
    int64_t ended_ms;
    uint32_t entry;
} jobs_end;

static int compare_ends(const void *a, const void *b)
{
    const jobs_end *x = a, *y = b;

    return x->ended_ms != y->ended_ms ? (x->ended_ms > y->ended_ms) - (x->ended_ms < y->ended_ms)
                                      : (x->entry > y->entry) - (x->entry < y->entry);
}

void gp_jobs_begin(gp_jobs *jobs, uint64_t next_id)
{
    jobs_end *ends = gp_calloc(jobs->used, sizeof(*ends));
    uint32_t count = 0;

    jobs->next_id = next_id;
    for (uint32_t at = jobs->lists[GP_JOBS_BY_ID].first; at != JOBS_NIL; at = jobs_next(jobs, at)) {
        if (!gp_jobs_state_ended(jobs_at(jobs, at)->state))
            continue;
        if (ends == NULL) /* Out of memory: order by id instead, which differs little. */
            jobs_done(jobs, jobs_at(jobs, at));
        else
            ends[count++] = (jobs_end){ .ended_ms = jobs_at(jobs, at)->ended_ms, .entry = at };
    }
    if (count > 0)
        qsort(ends, count, sizeof(*ends), compare_ends);
    for (uint32_t i = 0; i < count; i++)
        jobs_done(jobs, jobs_at(jobs, ends[i].entry));
    gp_free(ends);
}

bool gp_jobs_orphaned(const gp_jobs_job *job)
{
    return job->state == GP_JOBS_RUNNING || job->state == GP_JOBS_STOPPING;
}

/* ---- read access ---- */

const gp_jobs_job *gp_jobs_find(const gp_jobs *jobs, uint64_t id)
{
    return jobs_find_id(jobs, id);
}

bool gp_jobs_awaits(const gp_jobs *jobs, uint64_t id, uint32_t attempt)
{
    const gp_jobs_job *job = jobs_find_id(jobs, id);

    return job != NULL && job->state == GP_JOBS_STARTING && !job->spawned && attempt == job->attempts + 1 &&
           !jobs->failed;
}

const gp_jobs_job *gp_jobs_after(const gp_jobs *jobs, uint64_t id)
{
    const gp_jobs_job *job = jobs_find_id(jobs, id);
    uint32_t at = jobs->lists[GP_JOBS_BY_ID].first;

    if (job != NULL)
        at = job->links[GP_JOBS_BY_ID].next;
    while (job == NULL && at != JOBS_NIL && jobs_at(jobs, at)->id <= id)
        at = jobs_next(jobs, at);
    return at != JOBS_NIL ? jobs_at(jobs, at) : NULL;
}

const gp_jobs_job *gp_jobs_before(const gp_jobs *jobs, uint64_t id)
{
    const gp_jobs_job *job = id != 0 ? jobs_find_id(jobs, id) : NULL;
    uint32_t at = jobs->lists[GP_JOBS_BY_ID].last;

    if (job != NULL)
        at = job->links[GP_JOBS_BY_ID].previous;
    while (job == NULL && at != JOBS_NIL && id != 0 && jobs_at(jobs, at)->id >= id)
        at = jobs_at(jobs, at)->links[GP_JOBS_BY_ID].previous;
    return at != JOBS_NIL ? jobs_at(jobs, at) : NULL;
}

uint32_t gp_jobs_count(const gp_jobs *jobs, gp_jobs_state state)
{
    uint32_t count = 0;

    for (jobs_lane lane = JOBS_LANE_WORK; lane < JOBS_LANES; lane++)
        for (gp_jobs_kind kind = GP_JOBS_ORDINARY; kind < GP_JOBS_KINDS; kind++)
            count += jobs->counts[lane][kind][state];
    return count;
}

uint32_t jobs_lane_active(const gp_jobs *jobs, jobs_lane lane)
{
    uint32_t count = 0;

    for (gp_jobs_kind kind = GP_JOBS_ORDINARY; kind < GP_JOBS_KINDS; kind++) {
        const uint32_t *counts = jobs->counts[lane][kind];

        count += counts[GP_JOBS_STARTING] + counts[GP_JOBS_RUNNING] + counts[GP_JOBS_STOPPING];
    }
    return count;
}

uint32_t gp_jobs_active(const gp_jobs *jobs)
{
    uint32_t count = 0;

    for (jobs_lane lane = JOBS_LANE_WORK; lane < JOBS_LANES; lane++)
        count += jobs_lane_active(jobs, lane);
    return count;
}

bool gp_jobs_busy(const gp_jobs *jobs)
{
    const bool starts = !jobs->holding && !jobs->stopping && !jobs->failed;
    const bool waits = gp_jobs_count(jobs, GP_JOBS_QUEUED) > 0 && starts;

    /* While no job starts, a sweep without running trials would wait for ever. */
    const uint32_t active =
        jobs->holding && !jobs->stopping ? jobs_lane_active(jobs, JOBS_LANE_WORK) : gp_jobs_active(jobs);

    return active > 0 || waits || !gp_jobs_durable(jobs);
}

bool gp_jobs_durable(const gp_jobs *jobs)
{
    return jobs->failed || jobs->number <= jobs->persisted;
}

const gp_error *gp_jobs_failure(const gp_jobs *jobs)
{
    return jobs->failed ? &jobs->failure : NULL;
}
