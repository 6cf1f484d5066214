/* `gradpool wait`, `cancel` and `logs` for jobs of clusters. */
#include <inttypes.h>

#include "client/cli/cluster/cluster_jobs.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"

enum { EXIT_TIMED_OUT = 124, POLL_MS = 1000, FOLLOW_MS = 300, PIECE_BYTES = 1 << 16 };

/* Report an engine that does not answer, once per silence. */
static void note_trouble(const cli_call *call, const cluster_ref *ref, bool *noted)
{
    const cli_common *options = call->options;
    const gp_error *trouble = &ref->pass.trouble;

    if (trouble->code == GP_OK || cluster_is_over(&ref->record)) {
        *noted = false;
        return;
    }
    if (!*noted && !options->quiet)
        fprintf(stderr, "profile '%s': %s; still waiting (Ctrl-C ends only this command)\n",
                ref->record.profile, trouble->message);
    *noted = true;
}

/* ---- wait ---- */

/* Print a job that is over, and set call->code if it is still CLI_OK. */
static void wait_report(cli_call *call, const cluster_ref *ref)
{
    const cli_common *options = call->options;
    cluster_view view;

    if (!cluster_is_over(&ref->record))
        return;
    cluster_view_of(&view, &ref->place->site, &ref->record, NULL);
    if (call->code == CLI_OK)
        call->code = cluster_exit_code(&ref->record);
    if (options->json)
        cluster_view_json(&view, &ref->record, "\n");
    else if (!options->quiet)
        cluster_print_end(stdout, &view, &ref->record);
}

/* Visit the jobs until all, or any, are over. */
static gp_status wait_all(const cli_call *call, const cluster_refs *jobs, bool any, int64_t deadline_ms,
                          gp_error *err)
{
    bool noted = false;

    for (;;) {
        cluster_ref *next = NULL;
        size_t over = 0;

        for (size_t i = 0; i < jobs->count; i++) {
            cluster_ref *ref = &jobs->refs[i];
            gp_status status = cluster_is_over(&ref->record) ? GP_OK : cluster_ref_visit(ref, false, 0, err);

            if (status != GP_OK)
                return status;
            over += cluster_is_over(&ref->record);
            note_trouble(call, ref, &noted);
            if (!cluster_is_over(&ref->record) && (next == NULL || ref->pass.due_ms < next->pass.due_ms))
                next = ref;
        }
        if (next == NULL || (any && over > 0))
            return GP_OK;
        if (cli_stop != 0)
            return gp_fail(err, GP_ECANCELED, "interrupted; the jobs continue");
        if (gp_now_ms() >= deadline_ms)
            return gp_fail(err, GP_ETIMEDOUT, "%zu of %zu jobs are not over yet", jobs->count - over,
                           jobs->count);
        cluster_ref_sleep(next, POLL_MS);
    }
}

gp_status cluster_jobs_wait(cli_call *call, bool any, double timeout, gp_error *err)
{
    const int64_t deadline_ms = timeout > 0 ? gp_now_ms() + (int64_t)(timeout * 1000) : INT64_MAX;
    cluster_refs jobs;
    gp_status status;

    cli_catch_interrupts();
    status = cluster_refs_open(&jobs, call, err);
    if (status == GP_OK)
        status = wait_all(call, &jobs, any, deadline_ms, err);
    if (status != GP_OK)
        call->code = status == GP_ETIMEDOUT   ? EXIT_TIMED_OUT
                     : status == GP_ECANCELED ? CLI_INTERRUPTED
                                              : CLUSTER_EXIT_NO_OUTCOME;
    for (size_t i = 0; status == GP_OK && i < jobs.count; i++)
        wait_report(call, &jobs.refs[i]);
    cluster_refs_close(&jobs);
    return status;
}

/* ---- cancel ---- */

/* Cancel one job, and wait until the engine confirms its end. */
static gp_status cancel_one(const cli_call *call, cluster_ref *ref, uint32_t *count, gp_error *err)
{
    const int64_t deadline_ms = gp_now_ms() + CLUSTER_CANCEL_LIMIT_MS;
    const bool canceled = ref->record.job.canceled;
    /* the engine may still end the processes of a canceled job that has a result */
    const bool over = ref->record.job.state == CLUSTER_ENDED || (ref->record.job.has_result && !canceled);
    const cli_common *options = call->options;
    cluster_entry entry = { .exit_code = -1 };
    char command[CLUSTER_COMMAND_BYTES] = "";
    gp_status status;

    if (over) {
        if (!options->quiet)
            printf("job %s:%s has ended\n", ref->record.profile,
                   ref->record.job.id[0] != '\0' ? ref->record.job.id : ref->name);
        return GP_OK;
    }
    do {
        status = cluster_ref_visit(ref, true, CLUSTER_LOCK_WAIT_MS, err);
        if (status == GP_OK && ref->record.job.state != CLUSTER_ENDED)
            cluster_ref_sleep(ref, POLL_MS);
    } while (status == GP_OK && ref->record.job.state != CLUSTER_ENDED && cli_stop == 0 &&
             gp_now_ms() < deadline_ms);
    if (status != GP_OK || ref->record.job.state == CLUSTER_ENDED) {
        *count += status == GP_OK && !canceled;
        return status;
    }
    snprintf(entry.name, sizeof(entry.name), "%s", ref->name);
    snprintf(entry.id, sizeof(entry.id), "%s", ref->record.job.id);
    if (ref->record.job.seen.live)
        entry = ref->record.job.seen.entry;
    if (entry.id[0] != '\0')
        ref->place->site.engine->cancel_command(&ref->place->profile, &entry, command);
    return gp_fail(
        err, cli_stop != 0 ? GP_ECANCELED : GP_ETIMEDOUT,
        "the engine has not confirmed the end of job %s:%s%s%.200s; it is marked as canceled%s%.300s",
        ref->record.profile, entry.id[0] != '\0' ? entry.id : ref->name,
        ref->pass.trouble.code != GP_OK ? ": " : "",
        ref->pass.trouble.code != GP_OK ? ref->pass.trouble.message : "", command[0] != '\0' ? "; try: " : "",
        command);
}

gp_status cluster_jobs_cancel(cli_call *call, const char *profile, gp_error *err)
{
    const cli_common *options = call->options;
    uint32_t count = 0;
    cluster_refs jobs;
    gp_status status;

    cli_catch_interrupts();
    status =
        profile[0] != '\0' ? cluster_refs_open_all(&jobs, profile, err) : cluster_refs_open(&jobs, call, err);
    if (status != GP_OK)
        return status;
    /* All jobs are marked and canceled once before the engine's confirmations are awaited. */
    for (size_t i = 0; jobs.count > 1 && i < jobs.count && cli_stop == 0; i++)
        if (!cluster_is_over(&jobs.refs[i].record) && !jobs.refs[i].record.job.canceled &&
            cluster_ref_visit(&jobs.refs[i], true, CLUSTER_LOCK_WAIT_MS, err) == GP_OK && !jobs.refs[i].busy)
            count++;
    for (size_t i = 0; i < jobs.count; i++)
        /* report the error and cancel the remaining jobs */
        if (!(jobs.count > 1 && jobs.refs[i].record.job.state == CLUSTER_ENDED) &&
            cancel_one(call, &jobs.refs[i], &count, err) != GP_OK)
            call->code = cli_fail(call, err);
    if (call->code == CLI_OK && !options->quiet && (count > 0 || profile[0] != '\0'))
        printf("canceled %" PRIu32 " job%s\n", count, count == 1 ? "" : "s");
    cluster_refs_close(&jobs);
    return GP_OK;
}

/* ---- logs ---- */

/* Print new text of the log. *written is set to false if standard output fails. GP_ENOENT: there is
 * no log. */
static gp_status log_print(const cluster_ref *ref, uint64_t *offset, bool *written, gp_error *err)
{
    static char text[PIECE_BYTES];
    size_t got = 0;

    do {
        gp_status status =
            cluster_file_read(&ref->place->site, ref->name, "log", *offset, text, sizeof(text), &got, err);

        if (status != GP_OK)
            return status;
        *offset += got;
        *written = fwrite(text, 1, got, stdout) == got && fflush(stdout) == 0;
    } while (*written && got > 0);
    return GP_OK;
}

/* Print why there is no log yet, when that changes. */
static void log_wait_reason(const cli_call *call, const cluster_ref *ref, char *shown, size_t bytes)
{
    const cli_common *options = call->options;
    cluster_view view;
    char text[sizeof(view.engine) + sizeof(view.reason) + 32];

    cluster_view_of(&view, &ref->place->site, &ref->record, NULL);
    snprintf(text, sizeof(text), "%s: %s%s%s", gp_job_state_word(view.state), view.engine,
             view.reason[0] != '\0' ? ", " : "", view.reason);
    if (!options->quiet && strcmp(text, shown) != 0)
        fprintf(stderr, "job %s is %s\n", view.job, text);
    snprintf(shown, bytes, "%s", text);
}

static gp_status log_follow(cli_call *call, cluster_ref *ref, bool follow, gp_error *err)
{
    char shown[600] = "";
    uint64_t offset = 0;
    bool written = true, over, noted = false, exists = false;
    gp_status status;

    do {
        status = cluster_ref_visit(ref, false, 0, err);
        if (status != GP_OK)
            return status;
        /* checked before the last text, so that no output is missed */
        over = !follow || cluster_is_over(&ref->record);
        status = log_print(ref, &offset, &written, err);
        exists |= status == GP_OK;
        if (status != GP_OK && status != GP_ENOENT)
            return status;
        if (!exists && !cluster_is_over(&ref->record))
            log_wait_reason(call, ref, shown, sizeof(shown));
        note_trouble(call, ref, &noted);
        if (!over && written && cli_stop == 0)
            cluster_ref_sleep(ref, FOLLOW_MS);
    } while (!over && written && cli_stop == 0);
    call->code = !written ? CLI_FAILED : cli_stop != 0 ? CLI_INTERRUPTED : CLI_OK;
    return GP_OK;
}

gp_status cluster_jobs_log(cli_call *call, bool follow, gp_error *err)
{
    const cli_common *options = call->options;
    cluster_ref ref;
    cluster_view view;
    gp_status status = cluster_ref_open(&ref, call->words[0], err);

    if (status != GP_OK)
        return status;
    if (follow)
        cli_catch_interrupts();
    status = log_follow(call, &ref, follow, err);
    cluster_view_of(&view, &ref.place->site, &ref.record, NULL);
    if (status == GP_OK && cli_stop != 0)
        fprintf(stderr, "\ndetached; job %s continues; attach again with 'gradpool logs %s -f'\n", view.job,
                view.job);
    else if (status == GP_OK && follow && !options->quiet)
        cluster_print_end(stderr, &view, &ref.record);
    cluster_ref_close(&ref);
    return status;
}
