/* Jobs of a command run: queue, exit codes, and descriptions as text and JSON. */
#include "client/cli/run/command_set_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/printable.h"

void command_job_free(void *freed)
{
    command_job *job = freed;

    if (job == NULL)
        return;
    gp_free(job->values);
    gp_free(job->line);
    gp_free(job);
}

bool command_job_succeeded(const command_job *job)
{
    return job->end.kind == EXEC_ENDED && job->end.exit_code == 0 && !job->timed_out;
}

int command_job_code(const command_job *job)
{
    if (job->end.kind == EXEC_LOST)
        return COMMAND_SET_CODE_LOST;
    if (job->end.kind == EXEC_ENDED && job->end.signal != 0)
        return 128 + job->end.signal;
    return job->timed_out && job->end.exit_code == 0 ? 124 : job->end.exit_code;
}

/* Name the process that exited when a job was lost: a command that kills its parent kills the
 * runner, not the worker. */
char *command_job_text(const command_job *job, char *text, size_t bytes)
{
    const exec_event *end = &job->end;
    char times[48] = "";

    if (job->losses > 1)
        snprintf(times, sizeof(times), "lost %d times; the last time ", job->losses);
    if (job->timed_out)
        snprintf(text, bytes, "ended after %.3g s (--timeout)", end->seconds);
    else if (end->kind == EXEC_LOST && end->worker_alive)
        snprintf(text, bytes,
                 "%sthe runner of worker %u was killed while the command ran (the worker is alive; does the "
                 "command kill its parent?)",
                 times, job->worker);
    else if (end->kind == EXEC_LOST)
        snprintf(text, bytes, "%sworker %u exited while the command ran", times, job->worker);
    else if (end->kind == EXEC_FAILED)
        snprintf(text, bytes, "not started");
    else if (end->signal != 0)
        snprintf(text, bytes, "signal %d (%s)%s", end->signal, strsignal(end->signal),
                 end->core ? ", core dumped" : "");
    else
        snprintf(text, bytes, "exit code %d", end->exit_code);
    return text;
}

/* ---- JSON ---- */

/* Write arbitrary bytes as JSON text. Replace NUL and invalid UTF-8 by '?'. */
static gp_status put_bytes(gp_json_writer *writer, const char *key, const void *data, size_t bytes,
                           gp_error *err)
{
    char *copy = gp_malloc(bytes + 1);

    if (copy == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the JSON of a job");
    if (bytes > 0)
        memcpy(copy, data, bytes);
    for (char *at = copy; (at = memchr(at, '\0', bytes - (size_t)(at - copy))) != NULL;)
        *at = '?';
    copy[bytes] = '\0';
    gp_utf8_clean(copy, bytes);
    gp_json_put_text(writer, key, copy);
    gp_free(copy);
    return GP_OK;
}

gp_status command_job_put(gp_json_writer *writer, const command_job *job, gp_error *err)
{
    const exec_event *end = &job->end;
    gp_status status = GP_OK;
    char words[GP_RUNNER_TEXT_MAX], number[16];

    gp_json_put_integer(writer, "job", (int64_t)job->number);
    gp_json_begin_object(writer, "inputs"); /* the key of an unnamed input is its number, from 1 */
    for (int i = 0; i < inputs_sources(job->inputs) && status == GP_OK; i++) {
        const char *name = inputs_name(job->inputs, i), *value = job->values[i];

        snprintf(number, sizeof(number), "%d", i + 1);
        status = put_bytes(writer, name[0] != '\0' ? name : number, value, strlen(value), err);
    }
    gp_json_end_object(writer);
    if (status == GP_OK)
        status = put_bytes(writer, "command", job->line, strlen(job->line), err);
    if (job->worker != 0)
        gp_json_put_integer(writer, "worker", job->worker);
    gp_json_put_integer(writer, "attempts", job->attempts);
    gp_json_put_integer(writer, "exit_code", command_job_code(job));
    gp_json_put_integer(writer, "signal", end->signal);
    gp_json_put_bool(writer, "timed_out", job->timed_out);
    if (command_job_succeeded(job))
        gp_json_put_null(writer, "failure");
    else
        gp_json_put_text(writer, "failure",
                         end->kind == EXEC_FAILED ? end->text : command_job_text(job, words, sizeof(words)));
    gp_json_put_number(writer, "start", round(job->start * 1e3) / 1e3);
    gp_json_put_number(writer, "seconds", round(end->seconds * 1e6) / 1e6);
    gp_json_put_number(writer, "cpu_seconds", round((end->user_seconds + end->system_seconds) * 1e6) / 1e6);
    gp_json_put_integer(writer, "rss_bytes", (int64_t)end->rss_bytes);
    return status;
}

gp_status command_set_report(void *context, const void *subject, const gp_buffer *out, const gp_buffer *err,
                             gp_buffer *text, gp_error *error)
{
    gp_json_writer writer;
    gp_status status;

    (void)context;
    if (subject == NULL)
        return GP_OK;
    gp_json_writer_init(&writer, text, false);
    gp_json_begin_object(&writer, NULL);
    status = command_job_put(&writer, subject, error);
    if (status == GP_OK)
        status = put_bytes(&writer, "stdout", out->data, out->bytes, error);
    if (status == GP_OK)
        status = put_bytes(&writer, "stderr", err->data, err->bytes, error);
    gp_json_end_object(&writer);
    if (status == GP_OK)
        status = gp_json_writer_finish(&writer, error);
    return status == GP_OK ? gp_buffer_append(text, "\n", 1, error) : status;
}
