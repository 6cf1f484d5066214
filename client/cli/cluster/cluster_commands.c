/* `gradpool wait`, `cancel` and `logs` for jobs of clusters. */
#include <inttypes.h>

#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/jobs/job_view.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"

enum { EXIT_TIMED_OUT = 124, FOLLOW_MS = 300, PIECE_BYTES = 1 << 16, END_BYTES = 1 << 14 };

/* Report an engine that does not answer, once per silence.
 *   waits  the command waits for the job */
static void note_trouble(const cli_call *call, const cluster_ref *ref, bool waits, bool *noted)
{
    const cli_common *options = call->options;
    const gp_error *trouble = &ref->pass.trouble;

    if (trouble->code == GP_OK || cluster_is_over(&ref->record)) {
        *noted = false;
        return;
    }
    if (!*noted && !options->quiet)
        fprintf(stderr, "profile '%s': %s%s\n", ref->record.profile, trouble->message,
                waits ? "; still waiting (Ctrl-C ends only this command)" : "");
    *noted = true;
}

/* Report the jobs whose visit failed. Return whether there are any. */
static bool report_failures(cli_call *call, const cluster_refs *jobs)
{
    bool any = false;

    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->refs[i].failure.code != GP_OK) {
            cli_fail(call, &jobs->refs[i].failure);
            any = true;
        }
    return any;
}

/* ---- wait ---- */

/* Print a job that is over, and set call->code if it is still CLI_OK. */
static void wait_report(cli_call *call, const cluster_ref *ref)
{
    const cli_common *options = call->options;
    cluster_view view;

    if (ref->failure.code != GP_OK || !cluster_is_over(&ref->record))
        return;
    cluster_view_of(&view, &ref->place->site, &ref->record, NULL, NULL);
    if (call->code == CLI_OK)
        call->code = cluster_exit_code(&ref->record);
    if (options->json)
        cluster_view_json(&view, &ref->record, "\n");
    else if (!options->quiet)
        cluster_print_end(stdout, &view, &ref->record);
}

/* Visit the jobs until all, or any, are over. Ignore jobs whose visit failed. */
static gp_status wait_all(const cli_call *call, cluster_refs *jobs, bool any, int64_t deadline_ms,
                          gp_error *err)
{
    bool noted = false;

    for (;;) {
        size_t over = 0, failed = 0;
        const cluster_ref *silent = NULL;

        cluster_refs_visit(jobs, false, deadline_ms);
        for (size_t i = 0; i < jobs->count; i++) {
            if (jobs->refs[i].failure.code != GP_OK)
                failed++;
            else
                over += cluster_is_over(&jobs->refs[i].record);
            if (jobs->refs[i].pass.trouble.code != GP_OK)
                silent = &jobs->refs[i];
        }
        note_trouble(call, silent != NULL ? silent : jobs->refs, true, &noted);
        if (over + failed == jobs->count || (any && over > 0))
            return GP_OK;
        if (cli_stop != 0)
            return gp_fail(err, GP_ECANCELED, "interrupted; the jobs continue");
        if (gp_now_ms() >= deadline_ms)
            return gp_fail(err, GP_ETIMEDOUT, "%zu of %zu jobs are not over yet", jobs->count - over - failed,
                           jobs->count);
        cluster_refs_sleep(jobs);
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
    if (report_failures(call, &jobs) && status == GP_OK)
        call->code = CLUSTER_EXIT_NO_OUTCOME;
    cluster_refs_close(&jobs);
    return status;
}

/* ---- cancel ---- */

/* Fail for a job that is not canceled, or whose end the engine has not confirmed. */
static gp_status fail_unconfirmed(const cluster_ref *ref, gp_error *err)
{
    const gp_error *trouble = &ref->pass.trouble;
    const cluster_job *job = &ref->record.job;
    cluster_entry entry = { .exit_code = -1 };
    char command[CLUSTER_COMMAND_BYTES] = "";

    snprintf(entry.name, sizeof(entry.name), "%s", ref->name);
    snprintf(entry.id, sizeof(entry.id), "%s", job->id);
    if (job->seen.live)
        entry = job->seen.entry;
    if (!job->canceled)
        return gp_fail(err, cli_stop != 0 ? GP_ECANCELED : GP_ETIMEDOUT, "job %s:%s is not canceled: %s",
                       ref->record.profile, entry.id[0] != '\0' ? entry.id : ref->name,
                       ref->busy ? "another gradpool command works on it" : "interrupted");
    if (entry.id[0] != '\0')
        ref->place->site.engine->cancel_command(&ref->place->profile, &entry, command);
    return gp_fail(
        err, cli_stop != 0 ? GP_ECANCELED : GP_ETIMEDOUT,
        "the engine has not confirmed the end of job %s:%s%s%.200s; it is marked as canceled%s%.300s",
        ref->record.profile, entry.id[0] != '\0' ? entry.id : ref->name, trouble->code != GP_OK ? ": " : "",
        trouble->code != GP_OK ? trouble->message : "", command[0] != '\0' ? "; try: " : "", command);
}

/* Remove the jobs that have ended, or that have a result and were not canceled before. */
static void skip_ended(const cli_call *call, cluster_refs *jobs)
{
    const cli_common *options = call->options;
    size_t kept = 0;

    for (size_t i = 0; i < jobs->count; i++) {
        cluster_ref *ref = &jobs->refs[i];
        const cluster_job *job = &ref->record.job;

        if (job->state != CLUSTER_ENDED && (!job->has_result || job->canceled)) {
            jobs->refs[kept++] = *ref;
            continue;
        }
        if (!options->quiet)
            printf("job %s:%s has ended\n", ref->record.profile, job->id[0] != '\0' ? job->id : ref->name);
        cluster_ref_close(ref);
    }
    jobs->count = kept;
}

/* Return the number of jobs that need no further visit. */
static size_t count_ended(const cluster_refs *jobs)
{
    size_t count = 0;

    for (size_t i = 0; i < jobs->count; i++)
        count += jobs->refs[i].failure.code != GP_OK || jobs->refs[i].record.job.state == CLUSTER_ENDED;
    return count;
}

/* Print how the jobs ended that this command has not canceled. Return the number of the others. */
static size_t report_ended(const cli_call *call, const cluster_refs *jobs)
{
    const cli_common *options = call->options;
    size_t canceled = 0;
    cluster_view view;

    for (size_t i = 0; i < jobs->count; i++) {
        const cluster_ref *ref = &jobs->refs[i];
        const cluster_job *job = &ref->record.job;
        const bool absent = job->end == CLUSTER_END_CANCELED && job->launches > 0 && job->seen.cancel_ms == 0;

        if (ref->failure.code != GP_OK || job->state != CLUSTER_ENDED)
            continue;
        cluster_view_of(&view, &ref->place->site, &ref->record, NULL, NULL);
        canceled += view.state == GP_JOB_CANCELED && !absent;
        if (options->quiet)
            continue;
        if (view.state != GP_JOB_CANCELED)
            cluster_print_end(stdout, &view, &ref->record);
        else if (absent)
            printf("job %s: the engine no longer had it; it left no result, and is marked as canceled\n",
                   view.job);
    }
    return canceled;
}

gp_status cluster_jobs_cancel(cli_call *call, const char *profile, gp_error *err)
{
    const int64_t deadline_ms = gp_now_ms() + CLUSTER_CANCEL_LIMIT_MS;
    const cli_common *options = call->options;
    cluster_refs jobs;
    size_t canceled;
    gp_status status;

    cli_catch_interrupts();
    status =
        profile[0] != '\0' ? cluster_refs_open_all(&jobs, profile, err) : cluster_refs_open(&jobs, call, err);
    if (status != GP_OK)
        return status;
    skip_ended(call, &jobs);
    /* the first round requests the cancel of each job, however long that takes */
    for (int64_t round_end_ms = INT64_MAX;; round_end_ms = deadline_ms) {
        cluster_refs_visit(&jobs, true, round_end_ms);
        if (count_ended(&jobs) == jobs.count || cli_stop != 0 || gp_now_ms() >= deadline_ms)
            break;
        cluster_refs_sleep(&jobs);
    }
    for (size_t i = 0; i < jobs.count; i++)
        if (jobs.refs[i].failure.code == GP_OK && jobs.refs[i].record.job.state != CLUSTER_ENDED) {
            fail_unconfirmed(&jobs.refs[i], err);
            call->code = cli_fail(call, err);
        }
    canceled = report_ended(call, &jobs);
    if (report_failures(call, &jobs))
        call->code = CLI_FAILED;
    if (call->code == CLI_OK && !options->quiet && (canceled > 0 || profile[0] != '\0'))
        printf("canceled %zu job%s\n", canceled, canceled == 1 ? "" : "s");
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
    } while (*written && got == sizeof(text)); /* less: the end of the log, as it was then */
    return GP_OK;
}

/* Print why there is no log yet, when that changes. */
static void log_wait_reason(const cli_call *call, const cluster_ref *ref, char *shown, size_t bytes)
{
    const cli_common *options = call->options;
    cluster_view view;
    char text[sizeof(view.engine) + sizeof(view.reason) + 32];

    cluster_view_of(&view, &ref->place->site, &ref->record, NULL, NULL);
    snprintf(text, sizeof(text), "%s: %s%s%s", gp_job_state_word(view.state), view.engine,
             view.reason[0] != '\0' ? ", " : "", view.reason);
    if (!options->quiet && strcmp(text, shown) != 0)
        fprintf(stderr, "job %s is %s\n", view.job, text);
    snprintf(shown, bytes, "%s", text);
}

/* Draw the live picture of a training if there is one. Return whether it replaces the text. */
static bool log_draw(const cluster_ref *ref, job_view **view)
{
    if (*view == NULL)
        *view = job_view_new(ref->record.path, stdout);
    if (*view == NULL)
        return false;
    if (job_view_feed(*view)) { /* another attempt */
        job_view_free(*view);
        *view = NULL;
    }
    return true;
}

/* Print the text of the log that follows the table of a training. */
static bool log_print_end(const cluster_ref *ref)
{
    static char text[END_BYTES + 1];
    char path[CLUSTER_PATH_BYTES + 8];
    const char *rest = text;
    FILE *file;
    size_t got = 0;

    snprintf(path, sizeof(path), "%s/log", ref->record.path);
    file = fopen(path, "re");
    if (file != NULL) {
        if (fseek(file, -(long)END_BYTES, SEEK_END) != 0)
            rewind(file);
        got = fread(text, 1, END_BYTES, file);
        fclose(file);
    }
    text[got] = '\0';
    for (const char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        if (*line == '|')
            rest = end + 1;
    return fputs(rest, stdout) != EOF && fflush(stdout) == 0;
}

static gp_status log_follow(cli_call *call, cluster_ref *ref, bool follow, bool live, gp_error *err)
{
    char shown[600] = "";
    uint64_t offset = 0;
    bool written = true, over, noted = false, exists = false, drawn = false;
    job_view *view = NULL;
    gp_status status = GP_OK;

    do {
        status = cluster_ref_visit(ref, follow, err);
        if (status != GP_OK)
            break;
        /* checked before the last text, so that no output is missed */
        over = !follow || cluster_is_over(&ref->record);
        if (live && log_draw(ref, &view)) {
            drawn = exists = true;
        } else {
            status = log_print(ref, &offset, &written, err);
            exists |= status == GP_OK;
        }
        if (status != GP_OK && status != GP_ENOENT) {
            if (over)
                break;
            ref->pass.trouble = *err;
        }
        status = GP_OK;
        if (!exists && !cluster_is_over(&ref->record))
            log_wait_reason(call, ref, shown, sizeof(shown));
        note_trouble(call, ref, follow, &noted);
        if (!over && written && cli_stop == 0)
            cluster_ref_sleep(ref, FOLLOW_MS);
    } while (!over && written && cli_stop == 0);
    job_view_free(view);
    if (drawn && status == GP_OK && cli_stop == 0)
        written = log_print_end(ref) && written;
    call->code = !written ? CLI_FAILED : cli_stop != 0 ? CLI_INTERRUPTED : CLI_OK;
    return status;
}

gp_status cluster_jobs_log(cli_call *call, bool follow, bool live, gp_error *err)
{
    const cli_common *options = call->options;
    cluster_ref ref;
    cluster_view view;
    gp_status status = cluster_ref_open(&ref, call->words[0], err);

    if (status != GP_OK)
        return status;
    if (follow)
        cli_catch_interrupts();
    status = log_follow(call, &ref, follow, live && ref.place->site.engine->read == NULL, err);
    cluster_view_of(&view, &ref.place->site, &ref.record, NULL, NULL);
    if (status == GP_OK && cli_stop != 0)
        fprintf(stderr, "\ndetached; job %s continues; attach again with 'gradpool logs %s -f'\n", view.job,
                view.job);
    else if (status == GP_OK && follow && !options->quiet)
        cluster_print_end(stderr, &view, &ref.record);
    cluster_ref_close(&ref);
    return status;
}
