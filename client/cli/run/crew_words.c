#include "client/cli/run/crew_words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "proto/message/item.h"

enum { FACTS_BYTES_MAX = 8 << 20 };

bool crew_end_succeeded(const crew_end *end)
{
    return end->event.kind == EXEC_ENDED && end->event.exit_code == 0 && !end->timed_out;
}

int crew_end_code(const crew_end *end)
{
    if (end->event.kind == EXEC_LOST)
        return CREW_CODE_LOST;
    if (end->event.kind == EXEC_ENDED && end->event.signal != 0)
        return 128 + end->event.signal;
    return end->timed_out && end->event.exit_code == 0 ? 124 : end->event.exit_code;
}

/* Name the process that exited: a command that kills its parent takes the runner, not the worker. */
static void lost_words(const crew_end *end, char *text, size_t bytes)
{
    size_t used = 0;

    if (end->losses > 1)
        used = (size_t)snprintf(text, bytes, "lost %d times; the last time ", end->losses);
    if (end->event.worker_alive)
        snprintf(
            text + used, bytes - used,
            "the runner of worker %u was killed while it ran (the worker is alive; does the command kill its "
            "parent?)",
            end->worker);
    else
        snprintf(text + used, bytes - used, "worker %u exited while it ran", end->worker);
}

char *crew_end_words(const crew_end *end, char *text, size_t bytes)
{
    if (end->timed_out)
        snprintf(text, bytes, "ended after %.3g s (--timeout)", end->event.seconds);
    else if (end->event.kind == EXEC_LOST)
        lost_words(end, text, bytes);
    else if (end->event.kind == EXEC_FAILED)
        snprintf(text, bytes, "not started");
    else if (end->event.signal != 0)
        snprintf(text, bytes, "signal %d (%s)%s", end->event.signal, strsignal(end->event.signal),
                 end->event.core ? ", core dumped" : "");
    else
        snprintf(text, bytes, "exit code %d", end->event.exit_code);
    return text;
}

/* ---- JSON ---- */

/* Any bytes as a text that JSON can carry: what is no UTF-8, and NUL, become '?'. */
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

static gp_status put_inputs(gp_json_writer *writer, const char *const *names, const char *const *values,
                            int count, gp_error *err)
{
    gp_status status = GP_OK;

    gp_json_begin_object(writer, "inputs");
    for (int i = 0; i < count && status == GP_OK; i++) {
        char number[16];

        snprintf(number, sizeof(number), "%d", i + 1);
        status =
            put_bytes(writer, names[i][0] != '\0' ? names[i] : number, values[i], strlen(values[i]), err);
    }
    gp_json_end_object(writer);
    return status;
}

gp_status crew_facts(char **facts, uint64_t job, const char *const *names, const char *const *values,
                     int count, const char *command, const crew_end *end, gp_error *err)
{
    const exec_event *event = &end->event;
    gp_buffer text;
    gp_json_writer writer;
    size_t bytes;
    gp_status status;
    char words[GP_RUNNER_TEXT_MAX];

    gp_buffer_init(&text, FACTS_BYTES_MAX);
    gp_json_writer_init(&writer, &text, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "job", (int64_t)job);
    status = put_inputs(&writer, names, values, count, err);
    if (status == GP_OK)
        status = put_bytes(&writer, "command", command, strlen(command), err);
    if (end->worker != 0)
        gp_json_put_integer(&writer, "worker", end->worker);
    gp_json_put_integer(&writer, "attempts", end->attempts);
    gp_json_put_integer(&writer, "exit_code", crew_end_code(end));
    gp_json_put_integer(&writer, "signal", event->signal);
    gp_json_put_bool(&writer, "timed_out", end->timed_out);
    if (crew_end_succeeded(end))
        gp_json_put_null(&writer, "failure");
    else
        gp_json_put_text(&writer, "failure",
                         event->kind == EXEC_FAILED ? event->text
                                                    : crew_end_words(end, words, sizeof(words)));
    gp_json_put_number(&writer, "start", round(end->start * 1e3) / 1e3);
    gp_json_put_number(&writer, "seconds", round(event->seconds * 1e6) / 1e6);
    gp_json_put_number(&writer, "cpu_seconds",
                       round((event->user_seconds + event->system_seconds) * 1e6) / 1e6);
    gp_json_put_integer(&writer, "rss_bytes", (int64_t)event->rss_bytes);
    gp_json_end_object(&writer);
    if (status == GP_OK)
        status = gp_json_writer_finish(&writer, err);
    if (status == GP_OK)
        *facts = (char *)gp_buffer_take(&text, &bytes);
    gp_buffer_deinit(&text);
    return status;
}

gp_status crew_report(void *context, const char *facts, const gp_buffer *out, const gp_buffer *err,
                      gp_buffer *text, gp_error *error)
{
    gp_buffer said;
    gp_json_writer writer;
    gp_status status;

    (void)context;
    if (facts == NULL)
        return GP_OK; /* a job that was never begun for good */
    gp_buffer_init(&said, text->bytes_max);
    gp_json_writer_init(&writer, &said, false);
    gp_json_begin_object(&writer, NULL);
    status = put_bytes(&writer, "stdout", out->data, out->bytes, error);
    if (status == GP_OK)
        status = put_bytes(&writer, "stderr", err->data, err->bytes, error);
    gp_json_end_object(&writer);
    if (status == GP_OK)
        status = gp_json_writer_finish(&writer, error);
    if (status == GP_OK) /* two objects made one */
        status = gp_buffer_printf(text, error, "%.*s, %s\n", (int)strlen(facts) - 1, facts,
                                  gp_buffer_text(&said) + 1);
    gp_buffer_deinit(&said);
    return status;
}
