#include "client/team/unit.h"

#include "common/base/memory/alloc.h"

_Static_assert(UNIT_LEVEL_WORDS <= 32, "the words of a queue fit one summary");

/* ---- lists ---- */

void unit_list_append(unit_list *list, team_unit *unit)
{
    unit->next = NULL;
    unit->previous = list->last;
    if (list->last != NULL)
        list->last->next = unit;
    else
        list->first = unit;
    list->last = unit;
}

void unit_list_prepend(unit_list *list, team_unit *unit)
{
    unit->previous = NULL;
    unit->next = list->first;
    if (list->first != NULL)
        list->first->previous = unit;
    else
        list->last = unit;
    list->first = unit;
}

void unit_list_remove(unit_list *list, team_unit *unit)
{
    if (unit->previous != NULL)
        unit->previous->next = unit->next;
    else
        list->first = unit->next;
    if (unit->next != NULL)
        unit->next->previous = unit->previous;
    else
        list->last = unit->previous;
    unit->next = unit->previous = NULL;
}

/* ---- queues ---- */

static uint32_t level_of(const team_unit *unit)
{
    return (uint32_t)(GP_PRIORITY_MAX - unit->priority);
}

team_unit *unit_queue_first(const unit_queue *queue)
{
    if (queue->used_words == 0)
        return NULL;
    uint32_t word = (uint32_t)__builtin_ctz(queue->used_words);

    return queue->levels[word * 64 + (uint32_t)__builtin_ctzll(queue->used[word])].first;
}

/* Insert by sequence number. The units before it were revoked as well, so they are few. */
static void list_insert(unit_list *list, team_unit *unit)
{
    team_unit *next = list->first;

    while (next != NULL && next->turn < unit->turn)
        next = next->next;
    if (next == NULL) {
        unit_list_append(list, unit);
    } else if (next == list->first) {
        unit_list_prepend(list, unit);
    } else {
        unit->next = next;
        unit->previous = next->previous;
        next->previous->next = unit;
        next->previous = unit;
    }
}

void unit_queue_put(unit_queue *queue, team_unit *unit, bool front)
{
    uint32_t level = level_of(unit);

    if (front)
        list_insert(&queue->levels[level], unit);
    else
        unit_list_append(&queue->levels[level], unit);
    queue->used[level / 64] |= (uint64_t)1 << level % 64;
    queue->used_words |= 1u << level / 64;
    queue->count++;
}

void unit_queue_remove(unit_queue *queue, team_unit *unit)
{
    uint32_t level = level_of(unit);

    unit_list_remove(&queue->levels[level], unit);
    queue->count--;
    if (queue->levels[level].first == NULL) {
        queue->used[level / 64] &= ~((uint64_t)1 << level % 64);
        if (queue->used[level / 64] == 0)
            queue->used_words &= ~(1u << level / 64);
    }
}

/* ---- deadlines ---- */

static void timer_place(unit_timers *timers, uint32_t at, unit_timer entry)
{
    timers->at[at] = entry;
    entry.unit->timer = at + 1;
}

static void timer_up(unit_timers *timers, uint32_t at)
{
    unit_timer moving = timers->at[at];

    while (at > 0 && timers->at[(at - 1) / 2].when_ns > moving.when_ns) {
        timer_place(timers, at, timers->at[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    timer_place(timers, at, moving);
}

void unit_timers_clear(unit_timers *timers, team_unit *unit)
{
    if (unit->timer == 0)
        return;
    uint32_t at = unit->timer - 1;

    unit->timer = 0;
    if (at == --timers->count)
        return;
    const unit_timer moving = timers->at[timers->count];

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < timers->count && timers->at[child + 1].when_ns < timers->at[child].when_ns)
            child++;
        if (child >= timers->count || timers->at[child].when_ns >= moving.when_ns)
            break;
        timer_place(timers, at, timers->at[child]);
        at = child;
    }
    timer_place(timers, at, moving);
    timer_up(timers, at);
}

gp_status unit_timers_reserve(unit_timers *timers, gp_error *err)
{
    unit_timer *grown = gp_array_grow(timers->at, timers->count, sizeof(*grown));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u deadlines", timers->count + 1);
    timers->at = grown;
    return GP_OK;
}

void unit_timers_set(unit_timers *timers, team_unit *unit, int64_t when_ns)
{
    unit_timers_clear(timers, unit);
    if (unit_timers_reserve(timers, NULL) != GP_OK)
        return; /* out of memory: the deadline has no effect */
    timers->at[timers->count] = (unit_timer){ .when_ns = when_ns, .unit = unit };
    unit->timer = ++timers->count;
    timer_up(timers, timers->count - 1);
}
