/* membership.c: state machine for the membership of a training;
 * membership.h has the state diagram. */
#include "client/train/membership.h"

#include <assert.h>
#include <string.h>

typedef struct todo {
    membership_action *actions;
    size_t count;
} todo;

static membership_action *act(todo *out, membership_action_kind kind)
{
    membership_action *action = &out->actions[out->count++];

    assert(out->count <= MEMBERSHIP_ACTIONS_MAX);
    *action = (membership_action){ .kind = kind };
    return action;
}

static void set_alarm(todo *out, uint32_t ms)
{
    act(out, MEMBERSHIP_DO_ALARM)->ms = ms;
}

static void fail(membership *r, todo *out, membership_reason why)
{
    r->phase = MEMBERSHIP_OVER;
    r->why = why;
    act(out, MEMBERSHIP_DO_FAIL)->why = why;
}

static bool all_ended(const membership *r)
{
    return r->ended >= r->world;
}

/* ---- from one group to the next ---- */

/* Leave the current group and begin the next one, with a new train_begin. */
static void begin_next(membership *r, todo *out)
{
    bool moved = r->step > r->reported;

    r->in_a_row = (moved ? 0 : r->in_a_row) + r->broken;
    r->reported = r->begun_at = r->step;
    r->left = r->world;
    r->before = membership_reported_size(r);
    r->grown = r->next > r->world;
    r->world = r->next;
    r->is_reported = false;
    r->restarts++;
    r->ready = r->ended = r->paused = 0;
    memset(r->end_of, 0, sizeof(r->end_of));
    r->broken = false;
    r->granted = false;
    r->wanted = r->prepared = 0;
    r->phase = MEMBERSHIP_BEGIN;
    set_alarm(out, 0);
    *act(out, MEMBERSHIP_DO_START) =
        (membership_action){ .kind = MEMBERSHIP_DO_START, .workers = r->world, .restart = r->restarts };
}

/* Ask the scheduler to keep the current size, and report why. */
static void keep(membership *r, todo *out, membership_reason why)
{
    r->kept = true;
    *act(out, MEMBERSHIP_DO_KEEP) =
        (membership_action){ .kind = MEMBERSHIP_DO_KEEP, .workers = r->world, .why = why };
}

/* Start the transition to the wanted size, if one is due.
 *   reported  the scheduler just announced the size and the joining workers */
static void change_if_due(membership *r, todo *out, bool reported)
{
    bool grows = r->wanted > r->world;

    if (!membership_is_stepping(r))
        return;
    if (r->wanted == 0 || r->wanted == r->world || r->stopped) {
        r->phase = MEMBERSHIP_STEPS;
    } else if (!grows || r->prepared >= r->wanted - r->world) {
        r->phase = MEMBERSHIP_PAUSE;
        act(out, MEMBERSHIP_DO_PAUSE);
    } else if (r->phase == MEMBERSHIP_STEPS || reported) {
        r->phase = MEMBERSHIP_PREPARE;
        act(out, MEMBERSHIP_DO_PREPARE)->workers = r->wanted;
    }
}

/* ---- events ---- */

static void on_ready(membership *r, const membership_event *event, todo *out)
{
    if (r->phase != MEMBERSHIP_BEGIN || ++r->ready < r->world)
        return;
    r->begun_at = event->step;

    /* Only the last reported step may be missing, because a failed rank may have been the only one
     * with its state. If more steps are missing, the state is lost. Step 0 is the initial state. */
    if (r->restarts > 0 && event->step + 1 < r->reported + (event->step == 0)) {
        fail(r, out, MEMBERSHIP_REASON_STATE);
        return;
    }
    r->phase = MEMBERSHIP_STEPS;
    r->is_reported = true;
    if (r->restarts > 0)
        *act(out, MEMBERSHIP_DO_RESUME) =
            (membership_action){ .kind = MEMBERSHIP_DO_RESUME, .workers = r->before, .step = event->step };
    if (r->barred && !r->kept)
        keep(r, out, MEMBERSHIP_REASON_SHORT_LIVED);
    change_if_due(r, out, false);
}

/* Record how a rank in the current group ended; later reports for the same rank are ignored. */
static void mark_ended(membership *r, uint32_t rank, membership_end end)
{
    if (rank >= r->world || r->end_of[rank] != 0)
        return;
    r->end_of[rank] = (uint8_t)(1 + end);
    r->ended++;
    r->paused += end == MEMBERSHIP_PAUSED;
}

static void on_ended(membership *r, const membership_event *event, todo *out)
{
    mark_ended(r, event->rank, event->end);
    if (!all_ended(r))
        return;
    if (r->phase == MEMBERSHIP_BREAK && r->granted) {
        begin_next(r, out);
    } else if (r->phase == MEMBERSHIP_PAUSE && r->paused == r->world) {
        /* ask the scheduler to form the lease again, and wait for its grant */
        r->phase = MEMBERSHIP_WAIT;
        act(out, MEMBERSHIP_DO_FORM);
        set_alarm(out, MEMBERSHIP_REPLACE_MS);
    } else if (r->phase != MEMBERSHIP_BREAK && r->end_of[0] == 1 + MEMBERSHIP_FINISHED) {
        r->phase = MEMBERSHIP_OVER;
    }
}

static void on_lost(membership *r, const membership_event *event, todo *out)
{
    /* a grant may have announced the failure earlier */
    bool first = r->phase != MEMBERSHIP_BREAK || !r->broken;
    uint32_t in_a_row = r->step > r->reported ? 0 : r->in_a_row;

    /* the failed worker has left the old group, and the next group will not contain it */
    if (r->phase == MEMBERSHIP_WAIT)
        return;

    /* rank 0 has finished, so nothing is left to do */
    if (r->phase != MEMBERSHIP_BREAK && r->end_of[0] == 1 + MEMBERSHIP_FINISHED) {
        r->phase = MEMBERSHIP_OVER;
        return;
    }
    if (first && (r->world == 1 || r->stopped_hard || in_a_row >= r->max_restarts)) {
        mark_ended(r, event->rank, MEMBERSHIP_FAILED);
        fail(r, out,
             r->world == 1 && r->restarts > 0 && !r->stopped_hard ? MEMBERSHIP_REASON_ALONE
                                                                  : MEMBERSHIP_REASON_LOST);
        return;
    }

    /* Count short-lived growth. Workers that repeatedly join and fail cost more than they
     * contribute, so no more join after max_restarts failures in a row. */
    if (first && r->grown) {
        r->short_lived = r->step < r->begun_at + MEMBERSHIP_PROVED_STEPS ? r->short_lived + 1 : 0;
        r->barred = r->barred || r->short_lived >= r->max_restarts;
    }
    r->phase = MEMBERSHIP_BREAK;
    r->broken = true;
    r->granted = false;
    mark_ended(r, event->rank, MEMBERSHIP_FAILED);
    set_alarm(out, MEMBERSHIP_REPLACE_MS);
}

static void on_grant(membership *r, const membership_event *event, todo *out)
{
    r->next = event->workers;
    r->granted = true;
    if (r->phase == MEMBERSHIP_WAIT || all_ended(r)) {
        begin_next(r, out);
        return;
    }
    r->phase = MEMBERSHIP_BREAK; /* also without an earlier notice of the failure */
    set_alarm(out, MEMBERSHIP_FINAL_MESSAGE_MS);
}

static void on_change(membership *r, const membership_event *event, todo *out)
{
    if (event->asked) {
        r->barred = r->kept = false;
        r->short_lived = 0;
    }

    /* Between two groups the scheduler decides alone. It repeats announcements that it cannot carry
     * out at once. */
    if ((r->phase != MEMBERSHIP_BEGIN && !membership_is_stepping(r)) ||
        (r->barred && event->workers > r->world))
        return;
    r->wanted = event->workers;
    r->wanted_asked = event->asked;
    r->prepared = event->prepared;
    change_if_due(r, out, true);
}

static void on_unfit(membership *r, todo *out)
{
    if (r->phase != MEMBERSHIP_PREPARE)
        return;
    r->barred = true;
    r->wanted = 0;
    r->phase = MEMBERSHIP_STEPS;
    keep(r, out, MEMBERSHIP_REASON_UNFIT);
}

static void on_late(membership *r, todo *out)
{
    if (r->phase != MEMBERSHIP_BREAK && r->phase != MEMBERSHIP_WAIT)
        return;
    if (r->granted)
        begin_next(r, out);
    else
        fail(r, out, MEMBERSHIP_REASON_NOT_REPLACED);
}

size_t membership_step(membership *r, const membership_event *event,
                       membership_action actions[MEMBERSHIP_ACTIONS_MAX])
{
    todo out = { .actions = actions };

    if (r->phase == MEMBERSHIP_OVER) {
        if (event->kind == MEMBERSHIP_ENDED)
            mark_ended(r, event->rank, event->end);
        return 0;
    }
    switch (event->kind) {
    case MEMBERSHIP_READY:
        on_ready(r, event, &out);
        break;
    case MEMBERSHIP_STEP:
        r->step = event->step > r->step ? event->step : r->step;
        break;
    case MEMBERSHIP_ENDED:
        on_ended(r, event, &out);
        break;
    case MEMBERSHIP_LOST:
        on_lost(r, event, &out);
        break;
    case MEMBERSHIP_GRANT:
        on_grant(r, event, &out);
        break;
    case MEMBERSHIP_ATTACHED:
        r->world = event->workers;
        r->grown = r->world > r->left;
        break;
    case MEMBERSHIP_CHANGE:
        on_change(r, event, &out);
        break;
    case MEMBERSHIP_PREPARED:
        r->prepared = event->prepared;
        change_if_due(r, &out, false);
        break;
    case MEMBERSHIP_UNFIT:
        on_unfit(r, &out);
        break;

    /* the new scheduler announces the wanted size again */
    case MEMBERSHIP_RECONNECTED:
        if (r->phase == MEMBERSHIP_BEGIN || membership_is_stepping(r)) {
            r->wanted = 0;
            change_if_due(r, &out, false);
        }
        if (r->phase == MEMBERSHIP_WAIT)
            act(&out, MEMBERSHIP_DO_FORM);
        break;
    case MEMBERSHIP_STOPPED:
        r->stopped = true;
        r->stopped_hard = r->stopped_hard || event->hard;
        change_if_due(r, &out, false);
        break;
    case MEMBERSHIP_LATE:
        on_late(r, &out);
        break;
    }
    return out.count;
}

void membership_init(membership *r, uint32_t workers, uint32_t max_restarts)
{
    *r = (membership){ .world = workers, .before = workers, .max_restarts = max_restarts };
}
