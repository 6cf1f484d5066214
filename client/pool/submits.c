#include "client/pool/submits.h"

#include "common/base/memory/alloc.h"

gp_status submits_init(submits *s, uint64_t *jobs, size_t count, size_t window, int64_t timeout_ms,
                       int64_t now_ms, gp_error *err)
{
    *s = (submits){
        .jobs = jobs, .count = count, .window = window, .timeout_ms = timeout_ms, .received_ms = now_ms
    };
    s->order = gp_calloc(count == 0 ? 1 : count, sizeof(*s->order));
    if (s->order == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to submit %zu jobs", count);
    return GP_OK;
}

void submits_deinit(submits *s)
{
    gp_free(s->order);
    s->order = NULL;
}

bool submits_next(submits *s, size_t *number)
{
    while (s->next < s->count && s->jobs[s->next] != 0)
        s->next++;
    if (s->next == s->count || s->waiting >= s->window)
        return false;
    *number = s->next;
    return true;
}

void submits_sent(submits *s, size_t number)
{
    s->order[s->sent++] = number;
    s->next = number + 1;
    s->begun = s->next > s->begun ? s->next : s->begun;
    s->waiting++;
}

/* Return whether a submission from `first` up to `end`, exclusive, has no reply. */
static bool lacks_reply(const submits *s, size_t first, size_t end)
{
    for (size_t number = first; number < end; number++)
        if (s->jobs[number] == 0)
            return true;
    return false;
}

void submits_answered(submits *s, uint64_t place, uint64_t job, int64_t now_ms)
{
    if (place >= s->sent || s->jobs[s->order[place]] != 0)
        return;
    s->jobs[s->order[place]] = job;
    s->answered++;
    s->waiting--;
    if (submits_late(s, now_ms)) {
        s->stale = s->begun;
        s->late = s->late || lacks_reply(s, s->next, s->stale);
    }
    s->received_ms = now_ms;
}

void submits_again(submits *s)
{
    s->late = s->late || lacks_reply(s, 0, s->stale);
    s->sent = s->next = s->waiting = 0;
}

bool submits_done(const submits *s)
{
    return s->answered == s->count;
}

bool submits_late(const submits *s, int64_t now_ms)
{
    return s->late || now_ms - s->received_ms >= s->timeout_ms;
}
