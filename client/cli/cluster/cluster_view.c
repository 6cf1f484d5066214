/* Implement cluster_view.h. */
#include "client/cli/cluster/cluster_view.h"

#include <inttypes.h>
#include <time.h>

#include "client/cli/show.h"
#include "client/cluster/job_folder.h"
#include "client/runs/run_reader.h"
#include "common/base/clock.h"

enum { EXIT_FAILED = 1 };

bool cluster_is_over(const cluster_record *record)
{
    return record->job.state == CLUSTER_ENDED || record->job.has_result;
}

gp_job_state cluster_state_of(const cluster_job *job)
{
    if (job->has_result)
        return job->exit_code == 0                                  ? GP_JOB_DONE
               : job->canceled && job->exit_code == CLI_INTERRUPTED ? GP_JOB_CANCELED
                                                                    : GP_JOB_FAILED;
    switch (job->state) {
    case CLUSTER_STARTING:
        return GP_JOB_STARTING;
    case CLUSTER_RUNNING:
        return GP_JOB_RUNNING;
    case CLUSTER_CANCELING:
        return GP_JOB_STOPPING;
    case CLUSTER_ENDED:
        return job->end == CLUSTER_END_CANCELED  ? GP_JOB_CANCELED
               : job->end == CLUSTER_END_REFUSED ? GP_JOB_FAILED
                                                 : GP_JOB_LOST;
    default:
        return GP_JOB_QUEUED;
    }
}

int cluster_exit_code(const cluster_record *record)
{
    switch (cluster_state_of(&record->job)) {
    case GP_JOB_DONE:
        return CLI_OK;
    case GP_JOB_CANCELED:
        return CLI_INTERRUPTED;
    case GP_JOB_FAILED:
        return record->job.has_result && record->job.exit_code > 0 ? record->job.exit_code : EXIT_FAILED;
    default:
        return CLUSTER_EXIT_NO_OUTCOME;
    }
}

/* Return the step of a line and free the line; -1: none. */
static int64_t step_of(run_line *line)
{
    const int64_t step = gp_json_integer(gp_json_member(line->json, "step"), -1);

    run_line_deinit(line);
    return step;
}

cluster_steps cluster_steps_of(const char *text)
{
    cluster_steps steps = { -1, -1 };
    const char *rest = text;
    run_line line;

    if (run_line_next(&line, &rest))
        steps.first = step_of(&line);
    if (run_line_last(&line, text))
        steps.last = step_of(&line);
    return steps;
}

/* Read the steps in the metrics of the newest attempt. */
static cluster_steps read_steps(const cluster_site *site, const char *name)
{
    static char text[CLUSTER_METRICS_ENDS + 1];
    size_t got = 0;

    if (cluster_file_read(site, name, "metrics.jsonl", CLUSTER_READ_ENDS, text, CLUSTER_METRICS_ENDS, &got,
                          NULL) != GP_OK)
        return (cluster_steps){ -1, -1 };
    text[got] = '\0';
    return cluster_steps_of(text);
}

/* Describe why the job waits, or what happened to it. */
static void describe(cluster_view *out, const cluster_record *record, int64_t first_step)
{
    const cluster_job *job = &record->job;
    const cluster_entry *entry = &job->seen.entry;
    const cluster_facts *facts = &job->seen.facts;
    const bool queued = out->state == GP_JOB_QUEUED;
    char text[32] = "";
    int bytes = 0;

    if (gp_job_state_ended(out->state) || job->reason[0] != '\0') {
        snprintf(out->reason, sizeof(out->reason), "%s", job->reason);
    } else if (job->state == CLUSTER_LAUNCHING) {
        snprintf(out->reason, sizeof(out->reason), "the engine has not confirmed the launch");
    } else if (cluster_start_is_late(job, gp_unix_ms())) {
        snprintf(out->reason, sizeof(out->reason),
                 "the engine started it %" PRId64 " s ago, but it wrote no record; does %s exist there?",
                 (gp_unix_ms() - job->starting_unix_ms) / 1000, "the folder of the profile");
    } else if (queued && job->seen.live && entry->expected_start_s > 0) {
        time_t start = (time_t)entry->expected_start_s;
        struct tm local;

        localtime_r(&start, &local);
        strftime(text, sizeof(text), start - time(NULL) < 20 * 3600 ? "%H:%M" : "%Y-%m-%d %H:%M", &local);
        snprintf(out->reason, sizeof(out->reason), "expected start %s", text);
    } else if (queued && job->seen.live) {
        snprintf(out->reason, sizeof(out->reason), "%s", entry->reason);
    } else if (job->attempt > 1) {
        bytes = snprintf(out->reason, sizeof(out->reason), "requeued %" PRIu32 " time%s", job->attempt - 1,
                         job->attempt > 2 ? "s" : "");
        if (facts->attempt_reason[0] != '\0')
            bytes += snprintf(out->reason + bytes, sizeof(out->reason) - (size_t)bytes, " (%s)",
                              facts->attempt_reason);
        if (first_step > 1)
            snprintf(out->reason + bytes, sizeof(out->reason) - (size_t)bytes,
                     ", resumed after step %" PRId64, first_step - 1);
    }
}

void cluster_view_of(cluster_view *out, const cluster_site *site, const cluster_record *record,
                     const char *unknown, const cluster_steps *steps)
{
    const cluster_job *job = &record->job;
    const int64_t now_ms = gp_unix_ms(), end_ms = job->end_ms > 0 ? job->end_ms : now_ms;
    cluster_steps found = { -1, -1 };

    *out = (cluster_view){ .state = cluster_state_of(job), .step = -1, .exit_code = -1 };
    snprintf(out->job, sizeof(out->job), "%s:%s", record->profile, job->id[0] != '\0' ? job->id : job->name);
    if (job->attempt > 0)
        found = steps != NULL ? *steps : read_steps(site, job->name);
    out->step = found.last;
    if (cluster_is_over(record) && job->exit_code >= 0 && out->state != GP_JOB_CANCELED)
        out->exit_code = job->exit_code;
    if (job->state == CLUSTER_ENDED)
        snprintf(out->engine, sizeof(out->engine), "-");
    else if (unknown != NULL)
        snprintf(out->engine, sizeof(out->engine), "%.*s", (int)sizeof(out->engine) - 1, unknown);
    else if (job->seen.live)
        snprintf(out->engine, sizeof(out->engine), "%s", job->seen.entry.text);
    else
        snprintf(out->engine, sizeof(out->engine), job->seen.gone_ms != 0 ? "not listed" : "-");
    out->age_seconds = (double)(now_ms - record->submitted_ms) / 1000;
    if (job->begin_ms > 0)
        out->run_seconds = (double)(end_ms - job->begin_ms) / 1000;
    describe(out, record, found.first);
}

void cluster_view_put(gp_json_writer *writer, const cluster_view *view, const cluster_record *record)
{
    gp_json_begin_object(writer, NULL);
    gp_json_put_text(writer, "job", view->job);
    gp_json_put_text(writer, "name", record->label);
    gp_json_put_text(writer, "state", gp_job_state_word(view->state));
    gp_json_put_text(writer, "command", record->command);
    gp_json_put_integer(writer, "priority", 0);
    gp_json_put_integer(writer, "attempts", record->job.attempt);
    gp_json_put_integer(writer, "workers", 0);
    gp_json_put_integer(writer, "pid", 0);
    gp_json_put_number(writer, "age_seconds", view->age_seconds);
    gp_json_put_number(writer, "run_seconds", view->run_seconds);
    if (view->exit_code >= 0)
        gp_json_put_integer(writer, "exit_code", view->exit_code);
    else
        gp_json_put_null(writer, "exit_code");
    gp_json_put_integer(writer, "signal", 0);
    gp_json_put_text(writer, "reason", view->reason);
    gp_json_put_text(writer, "profile", record->profile);
    gp_json_put_text(writer, "array", record->array);
    gp_json_put_integer(writer, "array_index", record->array_index);
    gp_json_put_text(writer, "engine", view->engine);
    if (view->step >= 0)
        gp_json_put_integer(writer, "step", view->step);
    else
        gp_json_put_null(writer, "step");
    gp_json_end_object(writer);
}

void cluster_view_json(const cluster_view *view, const cluster_record *record, const char *end)
{
    gp_buffer text;
    gp_json_writer writer;

    gp_buffer_init(&text, 1 << 16);
    gp_json_writer_init(&writer, &text, false);
    cluster_view_put(&writer, view, record);
    printf("%s%s", gp_buffer_text(&text), end);
    gp_buffer_deinit(&text);
}

void cluster_print_end(FILE *out, const cluster_view *view, const cluster_record *record)
{
    char time[40], name[sizeof(record->label)], reason[sizeof(view->reason)];

    fprintf(out, "job %s%s%s%s: %s", view->job, record->label[0] != '\0' ? " (" : "",
            show_clean(name, sizeof(name), record->label), record->label[0] != '\0' ? ")" : "",
            gp_job_state_word(view->state));
    if (view->run_seconds > 0)
        fprintf(out, " after %s", cli_duration(view->run_seconds, time, sizeof(time)));
    if (view->exit_code > 0)
        fprintf(out, ", exit code %d", view->exit_code);
    if (view->reason[0] != '\0')
        fprintf(out, ": %s", show_clean(reason, sizeof(reason), view->reason));
    fprintf(out, "\n");
}
