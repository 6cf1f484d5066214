#include "client/runs/run_summary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/runs/run_reader.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fence.h"
#include "common/base/system/file.h"
#include "common/base/text/text.h"

/* Memory for the last lines of metrics.jsonl, from which the state of a running training is
 * read. */
enum { TAIL_BYTES = 16 << 10 };

static double number(const gp_json *object, const char *key, double fallback)
{
    return gp_json_number(gp_json_member(object, key), fallback);
}

static const char *text_of(const gp_json *object, const char *key)
{
    return gp_json_text(gp_json_member(object, key), "");
}

/* Read a document; NULL: it is missing or cannot be read.
 *   problem  set to the error of a document that cannot be read, unless it has one */
static gp_json *document_of(const char *folder, const char *name, gp_error *problem)
{
    gp_json *json;
    gp_error err;
    const gp_status status = run_document_read(&json, folder, name, &err);

    if (status != GP_OK && status != GP_ENOENT && problem->code == GP_OK)
        *problem = err;
    return json;
}

/* Return whether a process writes to the folder. It holds the lock of writer.lock, and tries again
 * if this function has the lock just then.
 *   problem  as in document_of(), for the lock */
static bool is_active(const char *folder, gp_error *problem)
{
    char path[RUN_PATH_BYTES];
    bool active;
    int fd;

    snprintf(path, sizeof(path), "%s/writer.lock", folder);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT && problem->code == GP_OK)
            gp_fail_errno(problem, GP_EIO, "cannot open %s", path);
        return false;
    }
    active = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return active;
}

/* Return the state of a training whose job on a cluster has not ended; NULL: the folder is not that
 * of a job (client/cluster/job_folder.h), or the job has ended. The training may run on a host
 * whose locks this host does not see, and a new attempt may follow an attempt that ended.
 *   problem  as in document_of() */
static const char *job_state(const char *folder, gp_error *problem)
{
    char path[RUN_PATH_BYTES];
    uint32_t attempt = 0;
    gp_json *record;
    bool ended;

    snprintf(path, sizeof(path), "%s/record.json", folder);
    if (access(path, F_OK) != 0)
        return NULL;
    snprintf(path, sizeof(path), "%s/result.json", folder);
    if (access(path, F_OK) == 0)
        return NULL;
    record = document_of(folder, "record.json", problem);
    ended = record == NULL || strcmp(text_of(record, "state"), "ended") == 0;
    gp_json_free(record);
    snprintf(path, sizeof(path), "%s/newest", folder);
    if (ended || gp_fence_read(&attempt, path, NULL) != GP_OK)
        return NULL;
    snprintf(path, sizeof(path), "%s/attempts/%" PRIu32 "/end.json", folder, attempt);
    return access(path, F_OK) == 0 ? "queued" : "running";
}

/* Get the value of an option from the command line, for folders whose facts.json lacks it. */
static const char *argument_of(const gp_json *command, const char *option)
{
    const gp_json *words = gp_json_member(command, "arguments");
    const size_t bytes = strlen(option);

    for (size_t i = 0; i < gp_json_count(words); i++) {
        const char *word = gp_json_text(gp_json_element(words, i), "");

        if (strncmp(word, option, bytes) != 0)
            continue;
        if (word[bytes] == '=')
            return word + bytes + 1;
        if (word[bytes] == '\0')
            return gp_json_text(gp_json_element(words, i + 1), "");
    }
    return "";
}

/* Take the results of the last lines of metrics.jsonl.
 *   validated  the training has validation data */
static void read_tail(run_summary *out, bool validated)
{
    char text[TAIL_BYTES];
    const char *rest = text;
    run_line parsed;
    int64_t steps = 0; /* in the tail */
    double began_s = 0;

    run_tail_read(out->folder, "metrics.jsonl", text, sizeof(text));
    while (run_line_next(&parsed, &rest)) {
        if (parsed.kind == RUN_LINE_STEP) {
            if (steps == 0)
                began_s = parsed.step.seconds;
            steps++;
            out->steps = (int64_t)parsed.step.step;
            out->epochs = parsed.step.epoch;
            out->loss = parsed.step.loss;
            out->seconds = parsed.step.seconds;
        }
        run_line_deinit(&parsed);
    }
    if (validated && run_validation_last(&parsed, out->folder)) { /* many steps may follow it */
        out->validation_loss = parsed.validation.loss;
        out->accuracy = parsed.validation.accuracy;
        out->rmse = parsed.validation.rmse;
        run_line_deinit(&parsed);
    }
    if (out->seconds > began_s)
        out->images_per_second = (double)(steps - 1) / (out->seconds - began_s) * (double)out->batch;
}

/* Take the results of end.json. */
static void read_end(run_summary *out, const gp_json *end)
{
    static const char *const states[] = { "completed", "stopped", "stopped early", "failed" };
    const char *state = text_of(end, "state");

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        if (strcmp(state, states[i]) == 0)
            out->state = states[i];
    snprintf(out->reason, sizeof(out->reason), "%s", text_of(end, "reason"));
    if (gp_json_member(end, "steps") == NULL)
        return;
    out->steps = (int64_t)run_count(end, "steps");
    out->loss = number(end, "loss", NAN);
    out->validation_loss = number(end, "validation_loss", NAN);
    out->accuracy = number(end, "validation_accuracy", NAN);
    out->rmse = number(end, "validation_rmse", NAN);
    out->seconds = number(end, "seconds", 0);
    if (out->seconds > 0)
        out->images_per_second =
            number(end, "samples", (double)out->steps * (double)out->batch) / out->seconds;
}

/* Take the result of a job that ended before its training began. */
static void read_exit(run_summary *out)
{
    const gp_json *result = gp_json_member(out->command, "exit");

    if (!gp_json_is_object(result))
        return;
    out->state = strcmp(text_of(result, "error"), "GP_ECANCELED") == 0 ? "stopped" : "failed";
    snprintf(out->reason, sizeof(out->reason), "%s", text_of(result, "message"));
}

static void read_note(run_summary *out)
{
    char path[RUN_PATH_BYTES];
    uint8_t *note;
    size_t bytes;

    snprintf(path, sizeof(path), "%s/note.txt", out->folder);
    if (gp_file_read(&note, &bytes, path, RUN_NOTE_BYTES_MAX + 1, NULL) != GP_OK)
        return;
    out->note = (char *)note;
    out->note[strcspn(out->note, "\n")] = '\0';
    if (out->note[0] != '\0')
        return;
    gp_free(out->note);
    out->note = NULL;
}

/* Take the sizes of facts.json. false: the training has no validation data. */
static bool read_facts(run_summary *out)
{
    gp_json *facts;
    const char *network, *data;
    bool validated;

    run_document_read(&facts, out->folder, "facts.json", NULL); /* the state does not depend on it */
    validated =
        gp_json_member(facts, "validation_samples") == NULL || run_count(facts, "validation_samples") > 0;
    network = text_of(facts, "network");
    data = text_of(facts, "data");
    if (network[0] == '\0')
        network = argument_of(out->command, "--network");
    if (network[0] == '\0')
        network = argument_of(out->command, "--pretrained");
    if (data[0] == '\0')
        data = argument_of(out->command, "--data");
    snprintf(out->network, sizeof(out->network), "%s", network);
    snprintf(out->data, sizeof(out->data), "%s", data);
    out->workers = (int64_t)run_count(facts, "workers");
    out->batch = (int64_t)run_count(facts, "batch");
    out->max_epochs = (int64_t)run_count(facts, "epochs");
    out->steps_per_epoch = (int64_t)run_count(facts, "steps_per_epoch");
    gp_json_free(facts);
    return validated;
}

gp_status run_summary_read(run_summary *out, const char *folder, gp_error *err)
{
    gp_error problem = { .code = GP_OK };
    const char *job = job_state(folder, &problem);
    struct stat info;
    gp_json *end;
    bool validated;

    *out = (run_summary){ .state = "killed",
                          .loss = NAN,
                          .validation_loss = NAN,
                          .accuracy = NAN,
                          .rmse = NAN,
                          .images_per_second = NAN };
    if (stat(folder, &info) == 0 ? !S_ISDIR(info.st_mode) : errno == ENOENT || errno == ENOTDIR)
        return gp_fail(err, GP_ENOENT, "there is no folder %s", folder);
    out->command = document_of(folder, "job.json", &problem);
    if (out->command == NULL && problem.code == GP_OK)
        return gp_fail(err, GP_ENOENT, "%s is not a run folder: it has no job.json", folder);
    out->folder = gp_strdup(folder);
    if (out->folder == NULL) {
        run_summary_deinit(out);
        return gp_fail(err, GP_ENOMEM, "no memory for the run in %s", folder);
    }
    for (size_t bytes = strlen(folder); bytes > 1 && folder[bytes - 1] == '/'; bytes--)
        out->folder[bytes - 1] = '\0'; /* as shells complete it */
    snprintf(out->began, sizeof(out->began), "%s", text_of(out->command, "began"));
    validated = read_facts(out);
    end = document_of(folder, "end.json", &problem);
    if (end == NULL || gp_json_member(end, "steps") == NULL)
        read_tail(out, validated);
    if (end != NULL)
        read_end(out, end);
    else if (is_active(folder, &problem))
        out->state = "running";
    else
        read_exit(out);
    if (job != NULL)
        out->state = job;
    if (problem.code != GP_OK) {
        out->state = "unreadable";
        snprintf(out->reason, sizeof(out->reason), "%s", problem.message);
    }
    if (out->epochs == 0 && out->steps_per_epoch > 0)
        out->epochs = (out->steps + out->steps_per_epoch - 1) / out->steps_per_epoch;
    read_note(out);
    gp_json_free(end);
    return GP_OK;
}

void run_summary_deinit(run_summary *summary)
{
    gp_json_free(summary->command);
    gp_free(summary->folder);
    gp_free(summary->note);
    summary->command = NULL;
    summary->folder = summary->note = NULL;
}

const char *run_summary_option(const run_summary *summary, const char *name, char *text, size_t bytes)
{
    const gp_json *value = gp_json_member(gp_json_member(summary->command, "options"), name);
    char digits[GP_NUMBER_BYTES];

    if (value == NULL)
        return NULL;
    if (gp_json_is_text(value))
        snprintf(text, bytes, "%s", gp_json_text(value, ""));
    else if (gp_json_is_bool(value))
        snprintf(text, bytes, "%s", gp_json_bool(value, false) ? "true" : "false");
    else if (gp_json_is_number(value))
        snprintf(text, bytes, "%s", gp_digits_text(gp_json_number(value, 0), digits));
    else {
        size_t used = 0;

        text[0] = '\0';
        for (size_t i = 0; i < gp_json_count(value) && used < bytes; i++) {
            gp_digits_text(gp_json_number(gp_json_element(value, i), 0), digits);
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", i == 0 ? "" : ",", digits);
        }
    }
    return text;
}

gp_status run_points_read(run_point **out, size_t *count, const char *folder, gp_error *err)
{
    run_lines *lines = run_lines_new(folder, "metrics.jsonl");
    const char *text;
    size_t bytes;
    bool full = false;

    *out = NULL;
    *count = 0;
    while (lines != NULL && (text = run_lines_next(lines, &bytes)) != NULL) {
        run_line line;
        run_point *grown;

        /* Most lines are steps: look for validations before parsing. */
        if (strstr(text, "\"validation_loss\"") == NULL || !run_line_parse(&line, text, bytes))
            continue;
        grown = line.kind == RUN_LINE_VALIDATION ? gp_array_grow(*out, *count, sizeof(*grown)) : NULL;
        full = full || (line.kind == RUN_LINE_VALIDATION && grown == NULL);
        if (grown != NULL) {
            *out = grown;
            (*out)[(*count)++] = (run_point){ .step = line.validation.step,
                                              .epoch = line.validation.epoch,
                                              .seconds = line.validation.seconds,
                                              .loss = line.validation.loss,
                                              .accuracy = line.validation.accuracy };
        }
        run_line_deinit(&line);
    }
    run_lines_free(lines);
    return lines == NULL || full ? gp_fail(err, GP_ENOMEM, "no memory to read the metrics of %s", folder)
                                 : GP_OK;
}

gp_status run_note_write(const char *folder, const char *note, gp_error *err)
{
    char path[RUN_PATH_BYTES], line[RUN_NOTE_BYTES_MAX + 2];

    if (strlen(note) > RUN_NOTE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the note has %zu bytes; the limit is %d", strlen(note),
                       RUN_NOTE_BYTES_MAX);
    snprintf(path, sizeof(path), "%s/note.txt", folder);
    if (note[0] == '\0')
        return unlink(path) == 0 || errno == ENOENT ? GP_OK
                                                    : gp_fail_errno(err, GP_EIO, "cannot remove %s", path);
    snprintf(line, sizeof(line), "%s\n", note);
    return gp_file_write(path, line, strlen(line), err);
}
