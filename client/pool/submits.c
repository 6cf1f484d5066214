#include "client/pool/submits.h"

#include "common/base/memory/alloc.h"

gp_status submits_init(submits *s, uint64_t *jobs, size_t count, size_t window, int64_t timeout_ms,
                       int64_t now_ms, gp_error *err)
{
    *s = (submits){
        .jobs = jobs, .count = count, .window = window, .timeout_ms = timeout_ms, .received_ms = now_ms
    };
    s->order = gp_calloc(count == 0 ? 1 : count, sizeof(*s->order));
    s->sent_ms = gp_calloc(count == 0 ? 1 : count, sizeof(*s->sent_ms));
    if (s->order == NULL || s->sent_ms == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to submit %zu jobs", count);
    return GP_OK;
}

void submits_deinit(submits *s)
{
    gp_free(s->order);
    gp_free(s->sent_ms);
    s->order = NULL;
    s->sent_ms = NULL;
}

/* Return the lowest number that has to be sent; s->count: none. */
static size_t lowest_unsent(const submits *s)
{
    size_t number = s->next;

    while (number < s->count && s->jobs[number] != 0)
        number++;
    return number;
}

bool submits_next(submits *s, size_t *number)
{
    s->next = lowest_unsent(s);
    if (s->next == s->count || s->waiting >= s->window)
        return false;
    *number = s->next;
    return true;
}

void submits_sent(submits *s, size_t number, int64_t now_ms)
{
    s->order[s->sent++] = number;
    s->next = number + 1;
    s->waiting++;
    if (number == s->begun)
        s->sent_ms[s->begun++] = now_ms;
}

void submits_answered(submits *s, uint64_t place, uint64_t job, int64_t now_ms)
{
    if (place >= s->sent || s->jobs[s->order[place]] != 0)
        return;
    s->jobs[s->order[place]] = job;
    s->answered++;
    s->waiting--;
    s->received_ms = now_ms;
}

void submits_again(submits *s)
{
    s->sent = s->next = s->waiting = 0;
}

bool submits_done(const submits *s)
{
    return s->answered == s->count;
}

bool submits_late(const submits *s, int64_t now_ms)
{
    const size_t number = lowest_unsent(s);

    return now_ms - s->received_ms >= s->timeout_ms ||
           (number < s->begun && now_ms - s->sent_ms[number] >= s->timeout_ms);
}
