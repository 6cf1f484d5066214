/* Journal of a sweep: write and read lines. trial_lines.h describes the format. */
#include "client/sweep/trial_lines.h"

#include <math.h>
#include <string.h>

static const char *const line_words[SWEEP_LINE_KINDS] = {
    [SWEEP_LINE_ASKED] = "asked", [SWEEP_LINE_ATTEMPT] = "attempt", [SWEEP_LINE_RUNG] = "rung",
    [SWEEP_LINE_STOP] = "stop",   [SWEEP_LINE_HALT] = "halt",       [SWEEP_LINE_END] = "end",
};

const char *sweep_state_word(sweep_state state)
{
    static const char *const words[SWEEP_STATES] = { "queued", "queued",  "running", "stopping",
                                                     "done",   "stopped", "failed",  "lost" };

    return state < SWEEP_STATES ? words[state] : "unknown";
}

/* ---- writing ---- */

static gp_status put_values(gp_json_writer *writer, const char *values, gp_error *err)
{
    gp_json *json = NULL;
    gp_status status = gp_json_parse(&json, values, strlen(values), err);

    if (status == GP_OK && !gp_json_is_object(json))
        status = gp_fail(err, GP_EINVAL, "the values of a trial are no JSON object: %.100s", values);
    if (status == GP_OK)
        gp_json_put_value(writer, "values", json);
    gp_json_free(json);
    return status;
}

/* Write the members of a line that depend on its kind. */
static gp_status put_members(gp_json_writer *writer, const sweep_line *line, gp_error *err)
{
    switch (line->kind) {
    case SWEEP_LINE_ASKED:
        gp_json_put_text(writer, "how", line->how != NULL ? line->how : "");
        if (line->of > 0)
            gp_json_put_integer(writer, "of", line->of);
        if (line->repeat > 0)
            gp_json_put_integer(writer, "repeat", line->repeat);
        if (line->request != NULL && line->request[0] != '\0')
            gp_json_put_text(writer, "request", line->request);
        return put_values(writer, line->values, err);
    case SWEEP_LINE_ATTEMPT:
        gp_json_put_integer(writer, "attempt", line->attempt);
        gp_json_put_bool(writer, "lost", line->lost);
        break;
    case SWEEP_LINE_RUNG:
        gp_json_put_integer(writer, "epoch", line->epoch);
        gp_json_put_number(writer, "value", line->value);
        gp_json_put_bool(writer, "stop", line->stop);
        break;
    case SWEEP_LINE_END:
        gp_json_put_text(writer, "state", sweep_state_word(line->state));
        gp_json_put_integer(writer, "epochs", line->epoch);
        gp_json_put_number(writer, "value", line->value);
        gp_json_put_text(writer, "text", line->text != NULL ? line->text : "");
        break;
    default:
        break;
    }
    return GP_OK;
}

gp_status sweep_line_encode(gp_buffer *out, const sweep_line *line, gp_error *err)
{
    const size_t before = out->bytes;
    gp_json_writer writer;
    gp_status status, finished;

    gp_json_writer_init(&writer, out, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_text(&writer, "event", line_words[line->kind]);
    if (line->kind != SWEEP_LINE_HALT)
        gp_json_put_integer(&writer, "trial", line->trial);
    status = put_members(&writer, line, err);
    gp_json_end_object(&writer);
    finished = gp_json_writer_finish(&writer, status == GP_OK ? err : NULL);
    status = status == GP_OK ? finished : status;
    if (status == GP_OK)
        status = gp_buffer_append(out, "\n", 1, err);
    if (status == GP_OK && out->bytes - before > SWEEP_LINE_BYTES_MAX)
        status = gp_fail(err, GP_ELIMIT, "a line of %zu bytes; the journal of a sweep allows %d",
                         out->bytes - before, SWEEP_LINE_BYTES_MAX);
    if (status != GP_OK)
        out->bytes = before;
    return status;
}

/* ---- reading ---- */

/* Read a number between min and max. false: missing or out of range. */
static bool get_count(const gp_json *json, const char *key, int64_t min, uint32_t *out)
{
    int64_t number = gp_json_integer(gp_json_member(json, key), -1);

    if (number < min || number > INT32_MAX)
        return false;
    *out = (uint32_t)number;
    return true;
}

static bool get_state(const gp_json *json, sweep_state *out)
{
    const char *word = gp_json_text(gp_json_member(json, "state"), "");

    for (sweep_state state = SWEEP_DONE; state < SWEEP_STATES; state++) {
        if (strcmp(word, sweep_state_word(state)) == 0) {
            *out = state;
            return true;
        }
    }
    return false;
}

/* Read the optional members of a trial that repeats the point of another one. */
static bool get_origin(const gp_json *json, sweep_line *line)
{
    const gp_json *of = gp_json_member(json, "of"), *repeat = gp_json_member(json, "repeat");

    return (of == NULL || get_count(json, "of", 1, &line->of)) &&
           (repeat == NULL || get_count(json, "repeat", 1, &line->repeat)) && line->of < line->trial &&
           (line->repeat == 0 || line->of > 0);
}

/* Take the members of a line from its object. `values` receives the text of the values. */
static bool get_members(sweep_line *line, const gp_json *json, gp_buffer *values)
{
    gp_json_writer writer;

    line->value = gp_json_number(gp_json_member(json, "value"), NAN);
    line->how = gp_json_text(gp_json_member(json, "how"), "");
    line->text = gp_json_text(gp_json_member(json, "text"), "");
    line->stop = gp_json_bool(gp_json_member(json, "stop"), false);
    line->lost = gp_json_bool(gp_json_member(json, "lost"), false);
    if (line->kind != SWEEP_LINE_HALT && !get_count(json, "trial", 1, &line->trial))
        return false;
    switch (line->kind) {
    case SWEEP_LINE_ASKED:
        gp_json_writer_init(&writer, values, false);
        gp_json_put_value(&writer, NULL, gp_json_member(json, "values"));
        line->values = gp_buffer_text(values);
        line->request = gp_json_text(gp_json_member(json, "request"), "");
        return gp_json_is_object(gp_json_member(json, "values")) && get_origin(json, line) &&
               gp_json_writer_finish(&writer, NULL) == GP_OK;
    case SWEEP_LINE_ATTEMPT:
        return get_count(json, "attempt", 2, &line->attempt);
    case SWEEP_LINE_RUNG:
        return get_count(json, "epoch", 1, &line->epoch);
    case SWEEP_LINE_END:
        return get_count(json, "epochs", 0, &line->epoch) && get_state(json, &line->state) &&
               (line->state != SWEEP_DONE || isfinite(line->value));
    default:
        return true;
    }
}

/* Decode one line. false: malformed. */
static bool decode_line(sweep_line *line, const gp_json *json, gp_buffer *values)
{
    const char *word = gp_json_text(gp_json_member(json, "event"), "");

    *line = (sweep_line){ .kind = SWEEP_LINE_KINDS };
    for (sweep_line_kind kind = SWEEP_LINE_ASKED; kind < SWEEP_LINE_KINDS; kind++)
        if (strcmp(word, line_words[kind]) == 0)
            line->kind = kind;
    return line->kind != SWEEP_LINE_KINDS && get_members(line, json, values);
}

gp_status sweep_lines_decode(const char *text, size_t bytes, size_t *kept,
                             gp_status (*each)(void *context, const sweep_line *line, gp_error *err),
                             void *context, gp_error *err)
{
    size_t at = 0, number = 1;
    const char *newline;
    gp_buffer values;
    gp_status status = GP_OK;

    gp_buffer_init(&values, SWEEP_LINE_BYTES_MAX);
    for (; status == GP_OK && at < bytes && (newline = memchr(text + at, '\n', bytes - at)) != NULL;
         number++) {
        size_t length = (size_t)(newline - (text + at));
        gp_json *json = NULL;
        sweep_line line;

        gp_buffer_clear(&values);
        if (length > SWEEP_LINE_BYTES_MAX || gp_json_parse(&json, text + at, length, NULL) != GP_OK ||
            !decode_line(&line, json, &values))
            status = gp_fail(err, GP_ECORRUPT, "line %zu of the journal is malformed", number);
        else
            status = each(context, &line, err);
        gp_json_free(json);
        at += length + 1;
    }
    gp_buffer_deinit(&values);
    if (status == GP_OK)
        *kept = at;
    return status;
}
