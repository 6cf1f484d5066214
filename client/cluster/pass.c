#include "client/cluster/pass.h"

#include <stdlib.h>
#include <string.h>

/* Bounds a pass whose engine changes with every call. The next pass continues. */
enum { ACTIONS_MAX = 16, SAME_NAME_MAX = 8 };

typedef struct pass {
    cluster_job *job;
    const cluster_hooks *hooks;
    cluster_pass_result *result;
} pass;

static int64_t now_ms(const pass *p)
{
    return p->hooks->now_ms(p->hooks->context);
}

static void apply(pass *p, const cluster_event *event)
{
    cluster_event timed = *event;

    timed.unix_ms = p->hooks->unix_ms(p->hooks->context);
    cluster_step(p->job, &timed, now_ms(p));
}

/* Apply an event without contents. */
static void apply_plain(pass *p, cluster_event_kind kind)
{
    apply(p, &(cluster_event){ .kind = kind });
}

/* Apply the entries of this job. More than SAME_NAME_MAX of them are left for the next listing. */
static void apply_listing(pass *p, const cluster_listing *listing, int64_t requested_ms, uint64_t changes)
{
    cluster_entry entries[SAME_NAME_MAX];
    size_t count = 0;

    for (size_t i = 0; i < listing->count && count < SAME_NAME_MAX; i++)
        if (strcmp(listing->entries[i].name, p->job->name) == 0)
            entries[count++] = listing->entries[i];
    apply(p, &(cluster_event){ .kind = CLUSTER_LISTED,
                               .requested_ms = requested_ms,
                               .changes = changes,
                               .entries = entries,
                               .entry_count = count });
}

/* ---- actions ---- */

/* The state LAUNCHING is on disk before the call: if this process is killed, the next command knows
 * that the job may have been launched. */
static gp_status do_launch(pass *p, gp_error *err)
{
    char id[CLUSTER_ID_BYTES] = "";
    gp_error *trouble = &p->result->trouble;
    gp_status status;

    apply_plain(p, CLUSTER_LAUNCH_BEGINS);
    status = p->hooks->store(p->hooks->context, p->job, err);
    if (status != GP_OK)
        return status;
    status = p->hooks->launch(p->hooks->context, p->job, id, trouble);
    if (status == GP_OK)
        apply(p, &(cluster_event){ .kind = CLUSTER_LAUNCHED, .text = id });
    else if (status == GP_ETIMEDOUT || status == GP_EPEER)
        apply_plain(p, CLUSTER_LAUNCH_UNKNOWN);
    else
        apply(p, &(cluster_event){ .kind = CLUSTER_LAUNCH_REFUSED, .text = trouble->message });
    return GP_OK;
}

static void do_list(pass *p)
{
    cluster_listing listing = { 0 };
    int64_t requested_ms = now_ms(p);

    if (p->hooks->list(p->hooks->context, p->job, &listing, &p->result->trouble) == GP_OK)
        apply_listing(p, &listing, requested_ms, p->job->changes);
    else
        apply_plain(p, CLUSTER_LIST_FAILED);
    cluster_listing_deinit(&listing);
}

static void do_read(pass *p)
{
    cluster_facts facts = { 0 };
    int64_t requested_ms = now_ms(p);

    if (p->hooks->facts(p->hooks->context, p->job, &facts, &p->result->trouble) == GP_OK)
        apply(p, &(cluster_event){ .kind = CLUSTER_FACTS, .requested_ms = requested_ms, .facts = &facts });
    else
        apply_plain(p, CLUSTER_FACTS_FAILED);
}

/* A failed request is repeated after the next listing. */
static void do_cancel(pass *p, const char *id, cluster_event_kind sent)
{
    (void)p->hooks->cancel(p->hooks->context, p->job, id, &p->result->trouble);
    apply_plain(p, sent);
}

gp_status cluster_pass(cluster_job *job, const cluster_hooks *hooks, const cluster_shared_listing *shared,
                       cluster_pass_result *result, gp_error *err)
{
    pass p = { job, hooks, result };
    gp_status status = GP_OK;

    *result = (cluster_pass_result){ .trouble = { .code = GP_OK } };
    apply(&p, &(cluster_event){ .kind = CLUSTER_OPENED, .text = hooks->clock });
    if (shared != NULL) {
        if (shared->listing != NULL)
            apply_listing(&p, shared->listing, shared->requested_ms, shared->changes);
        else if (job->seen.list_ms == 0) /* the first listing of this process has failed */
            apply_plain(&p, CLUSTER_LIST_FAILED);
        if (job->state != CLUSTER_ENDED || job->end == CLUSTER_END_LOST)
            do_read(&p);
    }
    for (int i = 0; i < ACTIONS_MAX; i++) {
        cluster_action action = cluster_next(job, now_ms(&p));

        if (action.kind != CLUSTER_DO_LAUNCH) /* do_launch() stores the job itself */
            status = hooks->store(hooks->context, job, err);
        if (status != GP_OK && action.kind == CLUSTER_DO_CANCEL_STRAY)
            return status;
        result->due_ms = action.due_ms;
        if (action.due_ms > now_ms(&p) || (action.kind == CLUSTER_DO_LIST && shared != NULL))
            return status;
        switch (action.kind) {
        case CLUSTER_DO_NOTHING:
            return status;
        case CLUSTER_DO_LAUNCH:
            status = do_launch(&p, err);
            if (status != GP_OK)
                return status;
            break;
        case CLUSTER_DO_LIST:
            do_list(&p);
            break;
        case CLUSTER_DO_READ:
            do_read(&p);
            break;
        case CLUSTER_DO_MARK:
            apply_plain(&p, hooks->mark(hooks->context, job, &result->trouble) == GP_OK
                                ? CLUSTER_MARKED
                                : CLUSTER_MARK_FAILED);
            break;
        case CLUSTER_DO_CANCEL:
            do_cancel(&p, job->id, CLUSTER_CANCEL_SENT);
            break;
        case CLUSTER_DO_CANCEL_STRAY:
            do_cancel(&p, job->stray_id, CLUSTER_STRAY_CANCEL_SENT);
            break;
        }
    }
    return hooks->store(hooks->context, job, err);
}
