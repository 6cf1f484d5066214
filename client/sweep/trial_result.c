/* Implement trial_result.h. */
#include "client/sweep/trial_result.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"

enum { PATH = SWEEP_PATH_MAX + 100, MEMBER_BYTES = 64, LOG_BYTES_MAX = 64 << 10 };

/* Return the objective of a line or of end.json: the member "validation-accuracy", or
 * "validation_accuracy". NaN: it has none. */
static double objective_of(const gp_json *json, const sweep_plan *plan)
{
    char member[MEMBER_BYTES];
    const gp_json *value = gp_json_member(json, plan->objective);

    snprintf(member, sizeof(member), "%s", plan->objective);
    for (char *c = member; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    return gp_json_number(value != NULL ? value : gp_json_member(json, member), NAN);
}

/* Names of the numbers in an object, for the message about a missing objective. */
typedef struct names {
    char *text;         /* [SWEEP_TEXT_MAX] */
    const char *having; /* only names with this text */
} names;

static gp_status list_member(void *context, const char *key, const gp_json *value, gp_error *err)
{
    const names *n = context;
    const size_t used = strlen(n->text);

    (void)err;
    if (gp_json_is_number(value) && strstr(key, n->having) != NULL && strcmp(key, "step") != 0)
        snprintf(n->text + used, SWEEP_TEXT_MAX - used, "%s%s", used == 0 ? "" : ", ", key);
    return GP_OK;
}

/* ---- values ---- */

void trial_reader_deinit(trial_reader *reader)
{
    run_lines_free(reader->lines);
    *reader = (trial_reader){ .lines = NULL };
}

/* Read the objective of a line. Return false if it has none. */
static bool take(trial_reader *reader, const sweep_plan *plan, const run_line *line, uint32_t *epoch,
                 double *value)
{
    const bool trains = sweep_plan_trains(plan);
    int64_t number = gp_json_integer(gp_json_member(line->json, "epoch"), -1);

    reader->any = true;
    *value = objective_of(line->json, plan);
    if (trains && line->kind != RUN_LINE_VALIDATION)
        return false;
    if (isnan(*value)) {
        reader->names[0] = '\0';
        gp_json_each(line->json, list_member, &(names){ reader->names, "" }, NULL);
        return false;
    }
    if (number < 0)
        number = gp_json_integer(gp_json_member(line->json, "step"), 0);
    *epoch = trains ? line->validation.epoch : number < 0 || number > INT32_MAX ? 0 : (uint32_t)number;
    reader->found = true;
    reader->value = *value;
    if (*epoch > 0)
        reader->epoch = *epoch;
    return true;
}

bool trial_reader_next(trial_reader *reader, const sweep_folder *folder, const sweep_plan *plan,
                       uint32_t trial, uint32_t *epoch, double *value)
{
    char path[PATH];
    const char *text;
    size_t bytes;
    run_line line;
    bool taken = false;

    if (reader->lines != NULL && run_lines_replaced(reader->lines))
        trial_reader_deinit(reader);
    if (reader->lines == NULL) {
        sweep_folder_trial(folder, trial, NULL, path);
        reader->lines = run_lines_new(path, "metrics.jsonl");
    }
    while (!taken && reader->lines != NULL && (text = run_lines_next(reader->lines, &bytes)) != NULL) {
        if (!run_line_parse(&line, text, bytes))
            continue;
        taken = take(reader, plan, &line, epoch, value);
        run_line_deinit(&line);
    }
    return taken;
}

/* Read the last line of a program that has exited, if it has no newline. */
static void read_rest(trial_reader *reader, const sweep_plan *plan)
{
    size_t bytes;
    const char *text = reader->lines != NULL ? run_lines_rest(reader->lines, &bytes) : NULL;
    uint32_t epoch;
    double value;
    run_line line;

    if (text == NULL || !run_line_parse(&line, text, bytes))
        return;
    take(reader, plan, &line, &epoch, &value);
    run_line_deinit(&line);
}

/* ---- results ---- */

/* Set the value of a complete training; without one, describe what its result has. */
static void read_training(sweep_event *event, char text[SWEEP_TEXT_MAX], const gp_json *end,
                          const sweep_plan *plan)
{
    char list[SWEEP_TEXT_MAX] = "";

    event->value = objective_of(end, plan);
    gp_json_each(end, list_member, &(names){ list, "validation" }, NULL);
    if (isnan(event->value))
        snprintf(text, SWEEP_TEXT_MAX, "ended without %s; the result has: %.100s", plan->objective, list);
}

/* Set the value of a complete program. */
static void read_program(sweep_event *event, char text[SWEEP_TEXT_MAX], const gp_json *end,
                         trial_reader *reader, const sweep_plan *plan)
{
    const gp_json *number = gp_json_member(end, "number");

    read_rest(reader, plan);
    event->value = reader->found ? reader->value : !reader->any ? gp_json_number(number, NAN) : NAN;
    if (!isnan(event->value))
        return;
    if (reader->any)
        snprintf(text, SWEEP_TEXT_MAX, "ended without %s; the lines of GRADPOOL_METRICS have: %.80s",
                 plan->objective, reader->names);
    else if (number != NULL)
        snprintf(text, SWEEP_TEXT_MAX, "the last number printed is not finite");
    else
        snprintf(text, SWEEP_TEXT_MAX,
                 "ended without %s: no line in GRADPOOL_METRICS and no number in the output",
                 plan->objective);
}

/* Set the text to the first error in the log of a job, such as "gradpool train: --lr is 7". A usage
 * error is only there. */
static void read_log(char text[SWEEP_TEXT_MAX], const char *folder)
{
    static const char begin[] = "gradpool ", hint[] = "; did you mean";
    char path[PATH];
    uint8_t *log = NULL;
    size_t bytes;

    snprintf(path, sizeof(path), "%s/log", folder);
    if (gp_file_read(&log, &bytes, path, LOG_BYTES_MAX, NULL) != GP_OK)
        return;
    for (const char *line = (const char *)log; *line != '\0'; line += strspn(line, "\n")) {
        const size_t length = strcspn(line, "\n");
        const char *colon = memchr(line, ':', length);

        if (strncmp(line, begin, sizeof(begin) - 1) == 0 && colon != NULL && colon[1] == ' ') {
            snprintf(text, SWEEP_TEXT_MAX, "%.*s", (int)(length - (size_t)(colon + 2 - line)), colon + 2);
            if (strstr(text, hint) != NULL) /* the command that follows in the log */
                *strstr(text, hint) = '\0';
            break;
        }
        line += length;
    }
    gp_free(log);
}

/* Describe why a job failed that left no result: the last error of its process. */
static void read_job(char text[SWEEP_TEXT_MAX], const gp_job_info *info)
{
    gp_json *record = NULL;
    const char *message;

    if (info->folder[0] != '\0')
        run_document_read(&record, info->folder, "job.json", NULL);
    message = gp_json_text(gp_json_member(gp_json_member(record, "exit"), "message"), "");
    if (message[0] == '\0')
        message = info->reason;
    if (message[0] != '\0')
        snprintf(text, SWEEP_TEXT_MAX, "%s", message);
    else if (info->folder[0] != '\0')
        read_log(text, info->folder);
    if (text[0] == '\0')
        snprintf(text, SWEEP_TEXT_MAX, "exit code %d; see `gradpool logs %" PRIu64 "`", info->exit_code,
                 info->id);
    gp_json_free(record);
}

/* Return whether a result is that of a training that failed by itself, and not because its lease or
 * its pool ended. */
static bool failed_itself(const gp_json *end)
{
    const char *error = gp_json_text(gp_json_member(end, "error"), "");

    return strcmp(gp_json_text(gp_json_member(end, "state"), ""), "failed") == 0 &&
           strcmp(error, gp_status_name(GP_ECANCELED)) != 0 && strcmp(error, gp_status_name(GP_ENOPOOL)) != 0;
}

/* Read end.json. *out is NULL if the file is missing, too large or malformed. */
static gp_status read_end(gp_json **out, const sweep_folder *folder, uint32_t trial, gp_error *err)
{
    char path[PATH];
    gp_status status;

    sweep_folder_trial(folder, trial, NULL, path);
    status = run_document_read(out, path, "end.json", err);
    return status == GP_ENOENT || status == GP_ECORRUPT ? GP_OK : status;
}

gp_status trial_result_read(sweep_event *event, char text[SWEEP_TEXT_MAX], trial_reader *reader,
                            const sweep_folder *folder, const sweep_plan *plan, const gp_job_info *info,
                            gp_error *err)
{
    const bool trains = sweep_plan_trains(plan);
    const char *state;
    gp_json *end;
    gp_status status = read_end(&end, folder, event->trial, err);

    if (status == GP_OK && reader->lines != NULL && run_lines_failed(reader->lines))
        status = gp_fail(err, GP_EIO, "cannot read metrics.jsonl of trial %" PRIu32, event->trial);
    if (status != GP_OK) {
        gp_json_free(end);
        return status;
    }
    state = gp_json_text(gp_json_member(end, "state"), "");
    text[0] = '\0';
    event->value = NAN;
    event->outcome = SWEEP_OUTCOME_LOST;
    if (strcmp(state, "completed") == 0 || strcmp(state, "stopped early") == 0) {
        event->outcome = SWEEP_OUTCOME_DONE;
        if (trains)
            read_training(event, text, end, plan);
        else
            read_program(event, text, end, reader, plan);
    } else if (failed_itself(end)) {
        event->outcome = SWEEP_OUTCOME_FAILED;
        snprintf(text, SWEEP_TEXT_MAX, "%s", gp_json_text(gp_json_member(end, "reason"), "failed"));
    } else if (info != NULL && info->cancel_asked) {
        event->outcome = SWEEP_OUTCOME_CANCELED;
    } else if (info != NULL && info->state == GP_JOB_FAILED && info->exit_code > 0 && end == NULL) {
        /* Without a result, a training failed before it began. A program that fails leaves a
         * result; without one, it was killed, or gradpool itself failed. */
        event->outcome = trains ? SWEEP_OUTCOME_FAILED : SWEEP_OUTCOME_LOST;
        read_job(text, info);
    }
    if (reader->epoch > 0)
        event->epoch = reader->epoch;
    event->text = text;
    gp_json_free(end);
    return GP_OK;
}
