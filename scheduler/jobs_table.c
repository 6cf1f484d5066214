/* jobs_table.c -- where jobs are kept.  A hundred thousand of them must cost a submit, a start or an end no more than
 * ten: two hash tables, three lists through the entries, one heap; all sized once. */
#include <assert.h>
#include <string.h>

#include "scheduler/jobs_parts.h"

/* ---- hash tables: linear probing, deletion by moving back ---- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

static uint64_t hash_submit(const uint8_t submitter[16], uint64_t seq)
{
    uint64_t halves[2];

    memcpy(halves, submitter, sizeof(halves));
    return mix(mix(halves[0] ^ seq) ^ halves[1]);
}

static uint64_t hash_entry(const gp_jobs *jobs, const uint32_t *table, uint32_t entry)
{
    const gp_jobs_job *job = jobs_at(jobs, entry);

    return table == jobs->id_table ? mix(job->id) : hash_submit(job->submitter, job->seq);
}

static void table_add(gp_jobs *jobs, uint32_t *table, uint32_t entry)
{
    uint32_t at = (uint32_t)hash_entry(jobs, table, entry) & jobs->table_mask;

    while (table[at] != 0)
        at = (at + 1) & jobs->table_mask;
    table[at] = entry;
}

static void table_remove(gp_jobs *jobs, uint32_t *table, uint32_t entry)
{
    uint32_t mask = jobs->table_mask, at = (uint32_t)hash_entry(jobs, table, entry) & mask;

    while (table[at] != entry) {
        assert(table[at] != 0);
        at = (at + 1) & mask;
    }
    table[at] = 0;
    for (uint32_t next = (at + 1) & mask; table[next] != 0; next = (next + 1) & mask) {
        uint32_t home = (uint32_t)hash_entry(jobs, table, table[next]) & mask;

        /* It may move into the hole unless its home lies behind the hole. */
        if (((next - home) & mask) >= ((next - at) & mask)) {
            table[at] = table[next];
            table[next] = 0;
            at = next;
        }
    }
}

gp_jobs_job *jobs_find_id(const gp_jobs *jobs, uint64_t id)
{
    for (uint32_t at = (uint32_t)mix(id) & jobs->table_mask; jobs->id_table[at] != 0;
         at = (at + 1) & jobs->table_mask) {
        if (jobs_at(jobs, jobs->id_table[at])->id == id)
            return jobs_at(jobs, jobs->id_table[at]);
    }
    return NULL;
}

gp_jobs_job *jobs_find_submit(const gp_jobs *jobs, const uint8_t submitter[16], uint64_t seq)
{
    for (uint32_t at = (uint32_t)hash_submit(submitter, seq) & jobs->table_mask; jobs->submit_table[at] != 0;
         at = (at + 1) & jobs->table_mask) {
        gp_jobs_job *job = jobs_at(jobs, jobs->submit_table[at]);

        if (job->seq == seq && memcmp(job->submitter, submitter, sizeof(job->submitter)) == 0)
            return job;
    }
    return NULL;
}

/* ---- lists through the entries ---- */

#define LIST_APPEND(jobs, list, entry, before, behind)                                                       \
    do {                                                                                                     \
        jobs_at((jobs), (entry))->before = (list)->last;                                                     \
        jobs_at((jobs), (entry))->behind = JOBS_NIL;                                                         \
        if ((list)->last != JOBS_NIL)                                                                        \
            jobs_at((jobs), (list)->last)->behind = (entry);                                                 \
        else                                                                                                 \
            (list)->first = (entry);                                                                         \
        (list)->last = (entry);                                                                              \
    } while (0)

#define LIST_REMOVE(jobs, list, entry, before, behind)                                                       \
    do {                                                                                                     \
        gp_jobs_job *gone_ = jobs_at((jobs), (entry));                                                       \
        if (gone_->before != JOBS_NIL)                                                                       \
            jobs_at((jobs), gone_->before)->behind = gone_->behind;                                          \
        else                                                                                                 \
            (list)->first = gone_->behind;                                                                   \
        if (gone_->behind != JOBS_NIL)                                                                       \
            jobs_at((jobs), gone_->behind)->before = gone_->before;                                          \
        else                                                                                                 \
            (list)->last = gone_->before;                                                                    \
        gone_->before = gone_->behind = JOBS_NIL;                                                            \
    } while (0)

static bool in_list(const jobs_list *list, uint32_t entry, uint32_t before)
{
    return before != JOBS_NIL || list->first == entry;
}

gp_jobs_job *jobs_take(gp_jobs *jobs, uint64_t id, const uint8_t submitter[16], uint64_t seq)
{
    uint32_t entry = jobs->free;
    gp_jobs_job *job;

    if (entry != JOBS_NIL) {
        jobs->free = jobs_at(jobs, entry)->next;
    } else {
        if (jobs->used == jobs->size)
            return NULL;
        entry = jobs->used++;
    }
    job = jobs_at(jobs, entry);
    memset(job, 0, sizeof(*job));
    job->id = id;
    job->seq = seq;
    memcpy(job->submitter, submitter, sizeof(job->submitter));
    jobs->counts[GP_JOBS_NONE]++;
    table_add(jobs, jobs->id_table, entry);
    table_add(jobs, jobs->submit_table, entry);
    LIST_APPEND(jobs, &jobs->by_id, entry, previous, next);
    return job;
}

void jobs_give(gp_jobs *jobs, gp_jobs_job *job)
{
    uint32_t entry = jobs_entry(jobs, job);

    jobs_clean(jobs, job);
    if (in_list(&jobs->done, entry, job->done_previous))
        LIST_REMOVE(jobs, &jobs->done, entry, done_previous, done_next);
    jobs_heap_remove(jobs, job);
    LIST_REMOVE(jobs, &jobs->by_id, entry, previous, next);
    table_remove(jobs, jobs->id_table, entry);
    table_remove(jobs, jobs->submit_table, entry);
    jobs->counts[job->state]--;
    job->id = 0;
    job->next = jobs->free;
    jobs->free = entry;
}

void jobs_set_state(gp_jobs *jobs, gp_jobs_job *job, gp_jobs_state state)
{
    jobs->counts[job->state]--;
    jobs->counts[state]++;
    job->state = state;
}

void jobs_clean(gp_jobs *jobs, gp_jobs_job *job)
{
    uint32_t entry = jobs_entry(jobs, job);

    if (in_list(&jobs->dirty, entry, job->dirty_previous))
        LIST_REMOVE(jobs, &jobs->dirty, entry, dirty_previous, dirty_next);
}

void jobs_dirty(gp_jobs *jobs, gp_jobs_job *job)
{
    uint32_t entry = jobs_entry(jobs, job);

    jobs_clean(jobs, job);
    LIST_APPEND(jobs, &jobs->dirty, entry, dirty_previous, dirty_next);
}

void jobs_done(gp_jobs *jobs, gp_jobs_job *job)
{
    uint32_t entry = jobs_entry(jobs, job);

    job->done_ms = jobs->now_ms;
    LIST_APPEND(jobs, &jobs->done, entry, done_previous, done_next);
}

/* ---- the heap of those that wait: higher priority first, then the older one ---- */

static bool heap_before(const jobs_wait *a, const jobs_wait *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

static void heap_put(gp_jobs *jobs, uint32_t at, jobs_wait wait)
{
    jobs->heap[at] = wait;
    jobs_at(jobs, wait.entry)->heap_place = at + 1;
}

static void heap_up(gp_jobs *jobs, uint32_t at)
{
    jobs_wait moved = jobs->heap[at];

    for (; at > 0 && heap_before(&moved, &jobs->heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap_put(jobs, at, jobs->heap[(at - 1) / 2]);
    heap_put(jobs, at, moved);
}

static void heap_down(gp_jobs *jobs, uint32_t at)
{
    jobs_wait moved = jobs->heap[at];

    for (uint32_t child; (child = 2 * at + 1) < jobs->heap_count; at = child) {
        if (child + 1 < jobs->heap_count && heap_before(&jobs->heap[child + 1], &jobs->heap[child]))
            child++;
        if (!heap_before(&jobs->heap[child], &moved))
            break;
        heap_put(jobs, at, jobs->heap[child]);
    }
    heap_put(jobs, at, moved);
}

void jobs_heap_push(gp_jobs *jobs, gp_jobs_job *job)
{
    if (job->heap_place != 0)
        return;
    assert(jobs->heap_count < jobs->size);
    heap_put(jobs, jobs->heap_count++,
             (jobs_wait){ .priority = job->priority, .entry = jobs_entry(jobs, job), .id = job->id });
    heap_up(jobs, job->heap_place - 1);
}

void jobs_heap_remove(gp_jobs *jobs, gp_jobs_job *job)
{
    uint32_t at = job->heap_place - 1;

    if (job->heap_place == 0)
        return;
    job->heap_place = 0;
    jobs->heap_count--;
    if (at == jobs->heap_count)
        return;
    heap_put(jobs, at, jobs->heap[jobs->heap_count]);
    heap_up(jobs, at);
    heap_down(jobs, at);
}

gp_jobs_job *jobs_heap_pop(gp_jobs *jobs)
{
    gp_jobs_job *job;

    if (jobs->heap_count == 0)
        return NULL;
    job = jobs_at(jobs, jobs->heap[0].entry);
    jobs_heap_remove(jobs, job);
    assert(job->state == GP_JOBS_QUEUED);
    return job;
}
