/* Job table with two indices, linked lists through the entries and a heap per lane, all allocated
 * once. With 100,000 jobs, a submit, start or end costs as much as with ten. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/core/jobs_parts.h"

/* ---- lookup by id and submit ---- */

typedef struct submit_key {
    const uint8_t *submitter;
    uint64_t seq;
} submit_key;

static uint64_t hash_submit(const uint8_t submitter[16], uint64_t seq)
{
    return gp_index_hash(submitter) ^ gp_index_mix(seq);
}

static uint64_t id_hash(const void *jobs, uint32_t entry)
{
    return gp_index_mix(jobs_at(jobs, entry)->id);
}

static bool id_is(const void *jobs, uint32_t entry, const void *key)
{
    return jobs_at(jobs, entry)->id == *(const uint64_t *)key;
}

static uint64_t submit_hash(const void *jobs, uint32_t entry)
{
    return hash_submit(jobs_at(jobs, entry)->submitter, jobs_at(jobs, entry)->seq);
}

static bool submit_is(const void *jobs, uint32_t entry, const void *key)
{
    const gp_jobs_job *job = jobs_at(jobs, entry);
    const submit_key *submit = key;

    return job->seq == submit->seq && memcmp(job->submitter, submit->submitter, sizeof(job->submitter)) == 0;
}

bool jobs_tables_init(gp_jobs *jobs)
{
    jobs->ids = (gp_index){ .owner = jobs, .hash = id_hash, .is = id_is };
    jobs->submits = (gp_index){ .owner = jobs, .hash = submit_hash, .is = submit_is };
    return gp_index_init(&jobs->ids, jobs->size) && gp_index_init(&jobs->submits, jobs->size);
}

static gp_jobs_job *jobs_found(const gp_jobs *jobs, uint32_t entry)
{
    return entry == JOBS_NIL ? NULL : jobs_at(jobs, entry);
}

gp_jobs_job *jobs_find_id(const gp_jobs *jobs, uint64_t id)
{
    return jobs_found(jobs, gp_index_find(&jobs->ids, gp_index_mix(id), &id));
}

gp_jobs_job *jobs_find_submit(const gp_jobs *jobs, const uint8_t submitter[16], uint64_t seq)
{
    const submit_key key = { submitter, seq };

    return jobs_found(jobs, gp_index_find(&jobs->submits, hash_submit(submitter, seq), &key));
}

/* ---- linked lists and entries ---- */

static gp_jobs_links *links_at(gp_jobs *jobs, gp_jobs_list list, uint32_t entry)
{
    return &jobs_at(jobs, entry)->links[list];
}

static void list_append(gp_jobs *jobs, gp_jobs_list list, uint32_t entry)
{
    jobs_ends *ends = &jobs->lists[list];

    *links_at(jobs, list, entry) = (gp_jobs_links){ .previous = ends->last };
    if (ends->last != JOBS_NIL)
        links_at(jobs, list, ends->last)->next = entry;
    else
        ends->first = entry;
    ends->last = entry;
}

/* Remove an entry from a list. Does nothing if the entry is not in the list. */
static void list_remove(gp_jobs *jobs, gp_jobs_list list, uint32_t entry)
{
    jobs_ends *ends = &jobs->lists[list];
    gp_jobs_links *links = links_at(jobs, list, entry), was = *links;

    if (was.previous == JOBS_NIL && ends->first != entry)
        return;
    *links = (gp_jobs_links){ 0 };
    if (was.previous != JOBS_NIL)
        links_at(jobs, list, was.previous)->next = was.next;
    else
        ends->first = was.next;
    if (was.next != JOBS_NIL)
        links_at(jobs, list, was.next)->previous = was.previous;
    else
        ends->last = was.previous;
}

static gp_jobs_list ended_list(const gp_jobs_job *job)
{
    return job->kind == GP_JOBS_TRIAL ? GP_JOBS_ENDED_TRIALS : GP_JOBS_ENDED;
}

/* Return the job counts by state for the lane and kind of a job. */
static uint32_t *counts_of(gp_jobs *jobs, const gp_jobs_job *job)
{
    return jobs->counts[jobs_lane_of(job->kind, job->command)][job->kind];
}

gp_jobs_job *jobs_take(gp_jobs *jobs, uint64_t id, const uint8_t submitter[16], uint64_t seq,
                       gp_jobs_kind kind, const char *command)
{
    uint32_t entry = jobs->free;
    gp_jobs_job *job;

    if (entry != JOBS_NIL) {
        jobs->free = jobs_next(jobs, entry);
    } else {
        if (jobs->used == jobs->size)
            return NULL;
        entry = jobs->used++;
    }
    job = jobs_at(jobs, entry);
    memset(job, 0, sizeof(*job));
    job->id = id;
    job->seq = seq;
    job->kind = kind;
    memcpy(job->submitter, submitter, sizeof(job->submitter));
    snprintf(job->command, sizeof(job->command), "%.*s", (int)sizeof(job->command) - 1, command);
    counts_of(jobs, job)[GP_JOBS_NONE]++;
    gp_index_add(&jobs->ids, entry);
    gp_index_add(&jobs->submits, entry);
    list_append(jobs, GP_JOBS_BY_ID, entry);
    return job;
}

void jobs_give(gp_jobs *jobs, gp_jobs_job *job)
{
    uint32_t entry = jobs_entry(jobs, job);

    jobs_clean(jobs, job);
    list_remove(jobs, ended_list(job), entry);
    jobs_heap_remove(jobs, job);
    list_remove(jobs, GP_JOBS_BY_ID, entry);
    gp_index_remove(&jobs->ids, entry);
    gp_index_remove(&jobs->submits, entry);
    counts_of(jobs, job)[job->state]--;
    job->id = 0;
    job->links[GP_JOBS_BY_ID].next = jobs->free;
    jobs->free = entry;
}

void jobs_set_state(gp_jobs *jobs, gp_jobs_job *job, gp_jobs_state state)
{
    counts_of(jobs, job)[job->state]--;
    counts_of(jobs, job)[state]++;
    job->state = state;
}

void jobs_clean(gp_jobs *jobs, gp_jobs_job *job)
{
    list_remove(jobs, GP_JOBS_WRITTEN, jobs_entry(jobs, job));
}

void jobs_dirty(gp_jobs *jobs, gp_jobs_job *job)
{
    jobs_clean(jobs, job);
    list_append(jobs, GP_JOBS_WRITTEN, jobs_entry(jobs, job));
}

void jobs_done(gp_jobs *jobs, gp_jobs_job *job)
{
    job->done_ms = jobs->now_ms;
    list_append(jobs, ended_list(job), jobs_entry(jobs, job));
}

/* ---- heaps of queued jobs: higher priority first, then older jobs ---- */

/* Return whether job a starts before job b. */
static bool heap_before(const jobs_wait *a, const jobs_wait *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

static jobs_heap *heap_of(gp_jobs *jobs, const gp_jobs_job *job)
{
    return &jobs->heaps[jobs_lane_of(job->kind, job->command)];
}

/* Store a heap element and record the position in the job. */
static void heap_put(gp_jobs *jobs, jobs_heap *heap, uint32_t at, jobs_wait wait)
{
    heap->items[at] = wait;
    jobs_at(jobs, wait.entry)->heap_place = at + 1;
}

static void heap_up(gp_jobs *jobs, jobs_heap *heap, uint32_t at)
{
    jobs_wait moved = heap->items[at];

    for (; at > 0 && heap_before(&moved, &heap->items[(at - 1) / 2]); at = (at - 1) / 2)
        heap_put(jobs, heap, at, heap->items[(at - 1) / 2]);
    heap_put(jobs, heap, at, moved);
}

void jobs_heap_push(gp_jobs *jobs, gp_jobs_job *job)
{
    jobs_heap *heap = heap_of(jobs, job);

    if (job->heap_place != 0)
        return;
    assert(heap->count < jobs->size);
    heap_put(jobs, heap, heap->count++,
             (jobs_wait){ .priority = job->priority, .entry = jobs_entry(jobs, job), .id = job->id });
    heap_up(jobs, heap, job->heap_place - 1);
}

void jobs_heap_remove(gp_jobs *jobs, gp_jobs_job *job)
{
    jobs_heap *heap = heap_of(jobs, job);
    uint32_t at = job->heap_place - 1;
    jobs_wait moved;

    if (job->heap_place == 0)
        return;
    job->heap_place = 0;
    heap->count--;
    if (at == heap->count)
        return;
    heap_put(jobs, heap, at, heap->items[heap->count]);
    heap_up(jobs, heap, at);
    moved = heap->items[at];
    for (uint32_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && heap_before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!heap_before(&heap->items[child], &moved))
            break;
        heap_put(jobs, heap, at, heap->items[child]);
    }
    heap_put(jobs, heap, at, moved);
}

gp_jobs_job *jobs_heap_peek(const gp_jobs *jobs, jobs_lane lane)
{
    return jobs->heaps[lane].count == 0 ? NULL : jobs_at(jobs, jobs->heaps[lane].items[0].entry);
}

gp_jobs_job *jobs_heap_pop(gp_jobs *jobs, jobs_lane lane)
{
    gp_jobs_job *job = jobs_heap_peek(jobs, lane);

    if (job == NULL)
        return NULL;
    jobs_heap_remove(jobs, job);
    assert(job->state == GP_JOBS_QUEUED);
    return job;
}
