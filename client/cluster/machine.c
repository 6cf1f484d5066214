#include "client/cluster/machine.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Names in records; never change them. */
static const char *const state_words[CLUSTER_STATES] = {
    [CLUSTER_WANTED] = "wanted",     [CLUSTER_LAUNCHING] = "launching", [CLUSTER_QUEUED] = "queued",
    [CLUSTER_STARTING] = "starting", [CLUSTER_RUNNING] = "running",     [CLUSTER_CANCELING] = "canceling",
    [CLUSTER_ENDED] = "ended",
};
static const char *const end_words[CLUSTER_ENDS] = {
    [CLUSTER_END_NONE] = "none",       [CLUSTER_END_RESULT] = "result", [CLUSTER_END_CANCELED] = "canceled",
    [CLUSTER_END_REFUSED] = "refused", [CLUSTER_END_LOST] = "lost",
};

const char *cluster_state_word(cluster_state state)
{
    return state_words[state];
}

const char *cluster_end_word(cluster_end end)
{
    return end_words[end];
}

static void copy(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from);
}

void cluster_job_init(cluster_job *job, const char *name)
{
    *job = (cluster_job){ .exit_code = -1 };
    copy(job->name, sizeof(job->name), name);
}

/* The job is live, or its state has changed: an earlier absence no longer counts. */
static void forget_absence(cluster_job *job)
{
    /* other processes must forget it too */
    if (job->gone_ms != 0)
        job->changes++;
    job->gone_ms = 0;
    job->gone_elsewhere = 0;
    job->seen.gone_ms = job->seen.gone_sure_ms = 0;
    job->seen.gone_ended = false;
}

static void change_state(cluster_job *job, cluster_state state)
{
    forget_absence(job);
    job->state = state;
    job->changes++;
}

/* `reason` may point into the job. */
static void end_job(cluster_job *job, cluster_end end, int exit_code, const char *reason)
{
    char text[sizeof(job->reason)];

    copy(text, sizeof(text), reason);
    copy(job->reason, sizeof(job->reason), text);
    job->end = end;
    job->exit_code = exit_code;
    change_state(job, CLUSTER_ENDED);
}

/* ---- listings ---- */

static bool is_live(const cluster_entry *entry)
{
    return entry->state != CLUSTER_ENTRY_ENDED;
}

/* Rate an entry as the one to keep: the job of the newest attempt, whose predecessors write nothing
 * any more; else the known id; else the furthest one. A job with a result needs only its own. */
static int entry_rank(const cluster_job *job, const cluster_entry *entry)
{
    const bool own = strcmp(entry->id, job->id) == 0;

    if (job->has_result || !is_live(entry))
        return own ? 2 : 1;
    if (job->attempt_id[0] != '\0' && strcmp(entry->id, job->attempt_id) == 0)
        return 6;
    return own ? 5 : entry->state == CLUSTER_ENTRY_RUNNING ? 4 : 3;
}

/* Return the entry that represents the job; NULL: none. */
static const cluster_entry *choose_entry(const cluster_job *job, const cluster_event *event)
{
    const cluster_entry *best = NULL;

    for (size_t i = 0; i < event->entry_count; i++)
        if (best == NULL || entry_rank(job, &event->entries[i]) > entry_rank(job, best))
            best = &event->entries[i];
    return best;
}

/* Remember a live entry other than `kept`. Of several, the next listing shows the rest. */
static void find_stray(cluster_job *job, const cluster_event *event, const cluster_entry *kept)
{
    job->stray_id[0] = '\0';
    for (size_t i = 0; i < event->entry_count; i++)
        if (&event->entries[i] != kept && is_live(&event->entries[i]))
            copy(job->stray_id, sizeof(job->stray_id), event->entries[i].id);
}

/* Measure for how long listings have lacked the job. */
static void measure_absence(cluster_job *job, int64_t requested_ms)
{
    const bool same_clock = strcmp(job->clock, job->seen.clock) == 0;
    int64_t first_ms;

    if (job->seen.gone_ms == 0)
        job->seen.gone_ms = requested_ms;
    first_ms = job->seen.gone_ms;
    if (job->gone_ms != 0 && same_clock && job->gone_ms < first_ms)
        first_ms = job->gone_ms;
    if (job->gone_ms == 0 || (!same_clock && ++job->gone_elsewhere > CLUSTER_ELSEWHERE_MAX)) {
        copy(job->clock, sizeof(job->clock), job->seen.clock);
        job->gone_ms = requested_ms;
        job->gone_elsewhere = 0;
    }
    if (requested_ms - first_ms >= CLUSTER_CONFIRM_MS)
        job->seen.gone_sure_ms = requested_ms;
}

/* No listed job of this name is live. */
static void listed_gone(cluster_job *job, const cluster_event *event, const cluster_entry *ended)
{
    if (ended != NULL) {
        if (job->state == CLUSTER_LAUNCHING)
            change_state(job, CLUSTER_QUEUED);
        copy(job->id, sizeof(job->id), ended->id);
        job->seen.gone_ended = true;
        if (!job->has_result)
            copy(job->reason, sizeof(job->reason), ended->reason[0] != '\0' ? ended->reason : ended->text);
    }
    measure_absence(job, event->requested_ms);
}

static void listed_live(cluster_job *job, const cluster_entry *entry, int64_t unix_ms)
{
    forget_absence(job);
    if (!job->has_result)
        job->reason[0] = '\0';
    copy(job->id, sizeof(job->id), entry->id);
    job->seen.live = true;
    job->seen.entry = *entry;
    /* nothing of the job runs, but the engine holds its allocation */
    if (job->has_result && unix_ms - job->end_ms >= CLUSTER_RELEASE_MS)
        copy(job->stray_id, sizeof(job->stray_id), entry->id);
    if (job->state == CLUSTER_CANCELING)
        return;
    if (entry->state == CLUSTER_ENTRY_QUEUED) {
        /* That attempt number was read before the listing was requested. */
        job->attempts_over = job->attempt;
        if (job->state != CLUSTER_QUEUED)
            change_state(job, CLUSTER_QUEUED);
    } else if (job->state != CLUSTER_RUNNING && job->state != CLUSTER_STARTING) {
        job->starting_unix_ms = unix_ms;
        change_state(job, CLUSTER_STARTING);
    }
}

static void step_listed(cluster_job *job, const cluster_event *event, int64_t now_ms)
{
    const cluster_entry *entry;

    job->seen.list_ms = now_ms;
    if (event->changes != job->changes)
        return;
    job->seen.live = false;
    entry = choose_entry(job, event);
    find_stray(job, event, entry);
    if (job->state == CLUSTER_ENDED) {
        if (entry == NULL || !is_live(entry))
            return;
        if (job->end != CLUSTER_END_LOST) {
            /* the engine accepted a launch late */
            copy(job->stray_id, sizeof(job->stray_id), entry->id);
            return;
        }
        /* the engine had forgotten the job only for a while */
        job->end = CLUSTER_END_NONE;
        job->exit_code = -1;
        change_state(job, CLUSTER_QUEUED);
    }
    if (job->state == CLUSTER_WANTED)
        return;
    if (entry == NULL || !is_live(entry))
        listed_gone(job, event, entry);
    else
        listed_live(job, entry, event->unix_ms);
}

/* ---- job folder ---- */

static void cancel(cluster_job *job)
{
    if (job->state == CLUSTER_ENDED || job->canceled)
        return;
    job->canceled = true;
    if (job->state == CLUSTER_WANTED)
        end_job(job, CLUSTER_END_CANCELED, -1, "canceled before it was launched");
    else
        change_state(job, CLUSTER_CANCELING);
}

/* End the job if the engine has, and the facts were read after the listing that says so. */
static void end_if_gone(cluster_job *job)
{
    const int64_t read_ms = job->seen.read_ms;
    const bool sure = job->seen.gone_sure_ms != 0 && read_ms >= job->seen.gone_sure_ms;
    const bool ended = job->seen.gone_ended && read_ms >= job->seen.gone_ms;

    if (!sure && !(ended && (job->has_result || job->canceled)))
        return;
    if (job->has_result) {
        end_job(job, CLUSTER_END_RESULT, job->exit_code, job->reason);
    } else if (job->canceled) {
        end_job(job, CLUSTER_END_CANCELED, -1, "canceled");
    } else if (job->state != CLUSTER_LAUNCHING) {
        end_job(job, CLUSTER_END_LOST, CLUSTER_EXIT_NO_OUTCOME,
                job->reason[0] != '\0' ? job->reason
                                       : "the engine no longer lists the job, and it left no result");
    } else if (job->launches >= CLUSTER_LAUNCHES_MAX) {
        end_job(job, CLUSTER_END_LOST, CLUSTER_EXIT_NO_OUTCOME,
                "the engine did not reply to several launches, and does not list the job");
    }
}

static void step_facts(cluster_job *job, const cluster_event *event, int64_t now_ms)
{
    const cluster_facts *facts = event->facts;

    job->seen.facts_ms = now_ms;
    job->seen.read_ms = event->requested_ms;
    job->seen.facts = *facts;
    if (facts->canceled) {
        job->marked = true;
        cancel(job);
    }
    if (job->state == CLUSTER_WANTED || (job->state == CLUSTER_ENDED && job->end != CLUSTER_END_LOST))
        return;
    if (facts->attempt > job->attempt) {
        job->attempt = facts->attempt;
        job->attempt_id[0] = '\0'; /* that of an older attempt */
        change_state(job, job->state);
    }
    if (facts->engine_id[0] != '\0' && facts->attempt == job->attempt)
        copy(job->attempt_id, sizeof(job->attempt_id), facts->engine_id);
    /* the newest attempt runs there, so the next listing chooses another stray */
    if (!job->has_result && strcmp(job->stray_id, job->attempt_id) == 0)
        job->stray_id[0] = '\0';
    if (job->id[0] == '\0')
        copy(job->id, sizeof(job->id), job->attempt_id);
    if (facts->begin_ms != 0)
        job->begin_ms = facts->begin_ms;
    if (facts->has_result && !job->has_result) {
        job->has_result = true;
        job->exit_code = facts->exit_code;
        job->end_ms = facts->end_ms;
        copy(job->reason, sizeof(job->reason), facts->reason);
        if (job->state == CLUSTER_ENDED)
            job->end = CLUSTER_END_RESULT;
    }
    if (facts->begun && facts->attempt == job->attempt && job->attempt > job->attempts_over &&
        (job->state == CLUSTER_LAUNCHING || job->state == CLUSTER_QUEUED || job->state == CLUSTER_STARTING))
        change_state(job, CLUSTER_RUNNING);
    end_if_gone(job);
}

/* ---- events ---- */

void cluster_step(cluster_job *job, const cluster_event *event, int64_t now_ms)
{
    /* another command has changed the job since the last event of this process */
    if (job->seen.changes != job->changes) {
        job->seen.gone_ms = job->seen.gone_sure_ms = 0;
        job->seen.gone_ended = job->seen.live = false;
    }
    switch (event->kind) {
    case CLUSTER_OPENED:
        copy(job->seen.clock, sizeof(job->seen.clock), event->text);
        job->seen.mark_failed = false;
        break;
    case CLUSTER_LAUNCH_BEGINS:
        assert(job->state == CLUSTER_WANTED || job->state == CLUSTER_LAUNCHING);
        job->launches++;
        change_state(job, CLUSTER_LAUNCHING);
        break;
    case CLUSTER_LAUNCHED:
        copy(job->id, sizeof(job->id), event->text);
        change_state(job, CLUSTER_QUEUED);
        /* the reply is as good as a listing and a look at the job folder */
        job->seen.list_ms = job->seen.facts_ms = now_ms;
        break;
    case CLUSTER_LAUNCH_REFUSED:
        /* an earlier launch of unknown outcome may still be accepted */
        end_job(job, job->launches > 1 ? CLUSTER_END_LOST : CLUSTER_END_REFUSED, CLUSTER_EXIT_NO_OUTCOME,
                event->text);
        break;
    case CLUSTER_LAUNCH_UNKNOWN:
        change_state(job, CLUSTER_LAUNCHING);
        break;
    case CLUSTER_LISTED:
        step_listed(job, event, now_ms);
        break;
    case CLUSTER_LIST_FAILED:
        job->seen.list_ms = now_ms;
        break;
    case CLUSTER_FACTS:
        step_facts(job, event, now_ms);
        break;
    case CLUSTER_FACTS_FAILED:
        job->seen.facts_ms = now_ms;
        break;
    case CLUSTER_CANCEL:
        cancel(job);
        break;
    case CLUSTER_MARKED:
        job->marked = true;
        break;
    case CLUSTER_MARK_FAILED:
        job->seen.mark_failed = true;
        break;
    case CLUSTER_CANCEL_SENT:
        job->seen.cancel_ms = now_ms;
        job->seen.live = false; /* until the next listing */
        break;
    case CLUSTER_STRAY_CANCEL_SENT:
        job->stray_id[0] = '\0';
        break;
    }
    job->seen.changes = job->changes;
}

/* ---- actions ---- */

/* Return whether a launch of unknown outcome can be repeated: the listing and the facts that show
 * no job are recent. */
static bool can_launch_again(const cluster_job *job, int64_t now_ms)
{
    return job->state == CLUSTER_LAUNCHING && job->seen.gone_sure_ms != 0 &&
           now_ms - job->seen.gone_sure_ms < CLUSTER_REPEAT_MS && job->seen.read_ms >= job->seen.gone_sure_ms;
}

/* Return whether to send the first cancel request of this process, or to repeat it. If a listing
 * lacks the job, its id may belong to another job by now. */
static bool can_cancel(const cluster_job *job, int64_t now_ms)
{
    return job->canceled && job->id[0] != '\0' && job->seen.list_ms != 0 && job->seen.gone_ms == 0 &&
           (job->seen.cancel_ms == 0 ||
            (job->seen.live && now_ms - job->seen.cancel_ms >= CLUSTER_CANCEL_MS));
}

/* Return whether to cancel the stray. Between an attempt's number and its begin.json, it is unknown
 * which of two jobs runs the newest attempt. Canceled jobs and those with a result need neither. */
static bool can_cancel_stray(const cluster_job *job)
{
    const cluster_facts *facts = &job->seen.facts;

    return job->canceled || job->has_result || job->state == CLUSTER_ENDED || job->attempt == 0 ||
           (facts->attempt == job->attempt && facts->begun);
}

static int64_t list_due_ms(const cluster_job *job)
{
    int64_t interval_ms = CLUSTER_LIST_MS;

    if (job->seen.list_ms == 0)
        return 0;
    if (job->state == CLUSTER_LAUNCHING || job->state == CLUSTER_CANCELING || job->has_result)
        interval_ms = CLUSTER_LIST_SOON_MS;
    if (job->seen.gone_ms != 0)
        interval_ms = CLUSTER_CONFIRM_MS - (job->seen.list_ms - job->seen.gone_ms);
    if (interval_ms < CLUSTER_LIST_SOON_MS)
        interval_ms = CLUSTER_LIST_SOON_MS;
    return job->seen.list_ms + interval_ms;
}

static int64_t read_due_ms(const cluster_job *job)
{
    const int64_t gone_ms = job->seen.gone_sure_ms != 0 ? job->seen.gone_sure_ms : job->seen.gone_ms;

    if (job->seen.facts_ms == 0 || (gone_ms != 0 && job->seen.facts_ms < gone_ms))
        return 0;
    return job->seen.facts_ms + CLUSTER_FACTS_MS;
}

cluster_action cluster_next(const cluster_job *job, int64_t now_ms)
{
    int64_t list_ms, read_ms;

    if (job->canceled && !job->marked && !job->seen.mark_failed && job->launches > 0)
        return (cluster_action){ CLUSTER_DO_MARK, now_ms };
    if (job->stray_id[0] != '\0' && (job->seen.facts_ms == 0 || job->seen.facts_ms < job->seen.list_ms))
        return (cluster_action){ CLUSTER_DO_READ, now_ms };
    if (job->stray_id[0] != '\0' && can_cancel_stray(job))
        return (cluster_action){ CLUSTER_DO_CANCEL_STRAY, now_ms };
    if (job->state == CLUSTER_ENDED)
        return (cluster_action){ CLUSTER_DO_NOTHING, INT64_MAX };
    if (job->state == CLUSTER_WANTED || can_launch_again(job, now_ms))
        return (cluster_action){ CLUSTER_DO_LAUNCH, now_ms };
    if (can_cancel(job, now_ms))
        return (cluster_action){ CLUSTER_DO_CANCEL, now_ms };
    list_ms = list_due_ms(job);
    read_ms = read_due_ms(job);
    return list_ms <= read_ms ? (cluster_action){ CLUSTER_DO_LIST, list_ms }
                              : (cluster_action){ CLUSTER_DO_READ, read_ms };
}

bool cluster_start_is_late(const cluster_job *job, int64_t unix_ms)
{
    return job->state == CLUSTER_STARTING && unix_ms - job->starting_unix_ms >= CLUSTER_START_MS;
}
