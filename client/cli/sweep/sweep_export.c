/* Trials of a sweep as files of other programs; sweep_export.h describes the interface. */
#include "client/cli/sweep/sweep_export.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/sweep/sweep_table.h"
#include "client/runs/run_reader.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/text/text.h"

enum { FILE_BYTES_MAX = 1 << 30, PATH = SWEEP_PATH_MAX + 100 };

/* ---- CSV ---- */

/* Append a field, with a comma before it unless it is the first of a line. */
static gp_status put_field(gp_buffer *out, bool first, const char *text, gp_error *err)
{
    gp_status status = first ? GP_OK : gp_buffer_append(out, ",", 1, err);

    return status == GP_OK ? gp_buffer_csv_field(out, text, err) : status;
}

/* Append a number; NaN: an empty field. */
static gp_status put_number(gp_buffer *out, double value, gp_error *err)
{
    char text[GP_NUMBER_BYTES];

    return put_field(out, false, isnan(value) ? "" : gp_number_text(value, text), err);
}

static gp_status put_titles(gp_buffer *out, const gp_space *space, const sweep_plan *plan, gp_error *err)
{
    const char *const titles[] = {
        "trial", "state", plan->objective, "epochs", "seconds", "attempts", "how"
    };
    gp_status status = GP_OK;

    for (size_t i = 0; status == GP_OK && i < sizeof(titles) / sizeof(titles[0]); i++)
        status = put_field(out, i == 0, titles[i], err);
    for (uint32_t i = 0; status == GP_OK && i < space->count; i++)
        status = put_field(out, false, space->parameters[i].name, err);
    return status == GP_OK ? gp_buffer_append(out, ",text\n", 6, err) : status;
}

/* Append a time in seconds; NaN: an empty field. */
static gp_status put_seconds(gp_buffer *out, double seconds, gp_error *err)
{
    return isnan(seconds) ? put_field(out, false, "", err) : gp_buffer_printf(out, err, ",%.3f", seconds);
}

static gp_status put_row(gp_buffer *out, const gp_space *space, const sweep_folder *folder, uint32_t number,
                         const sweep_trial *trial, gp_error *err)
{
    char text[GP_NUMBER_BYTES];
    sweep_point point;
    gp_status status = sweep_point_read(&point, space, trial->values, err);

    if (status == GP_OK)
        status = gp_buffer_printf(out, err, "%" PRIu32 ",%s", number, sweep_state_word(trial->state));
    if (status == GP_OK)
        status = put_number(out, trial->value, err);
    if (status == GP_OK)
        status = put_number(out, trial->epoch, err);
    if (status == GP_OK)
        status = put_seconds(out, sweep_trial_seconds(folder, number), err);
    if (status == GP_OK)
        status = put_number(out, trial->attempt, err);
    if (status == GP_OK)
        status = put_field(out, false, trial->how, err);
    for (uint32_t i = 0; status == GP_OK && i < space->count; i++)
        status = put_field(out, false, sweep_point_text(&point, space, i, text), err);
    if (status == GP_OK)
        status = put_field(out, false, trial->text != NULL ? trial->text : "", err);
    return status == GP_OK ? gp_buffer_append(out, "\n", 1, err) : status;
}

gp_status sweep_export_csv(const char *path, const sweep *core, const sweep_folder *folder,
                           const sweep_plan *plan, gp_error *err)
{
    gp_space *space = NULL;
    gp_buffer out;
    gp_status status = sweep_points_space(&space, plan, err);

    gp_buffer_init(&out, FILE_BYTES_MAX);
    if (status == GP_OK)
        status = put_titles(&out, space, plan, err);
    for (uint32_t i = 1; status == GP_OK && i <= sweep_count(core); i++)
        status = put_row(&out, space, folder, i, sweep_find(core, i), err);
    if (status == GP_OK)
        status = gp_file_write(path, gp_buffer_text(&out), out.bytes, err);
    gp_buffer_deinit(&out);
    gp_space_free(space);
    return status;
}

/* ---- Optuna ---- */

/* Operation codes and directions in Optuna's journal (optuna/storages/journal/_storage.py). */
enum { CREATE_STUDY = 0, CREATE_TRIAL = 4, MINIMIZE = 1, MAXIMIZE = 2 };

static int optuna_state(sweep_state state)
{
    enum { COMPLETE = 1, PRUNED = 2, FAIL = 3 };

    return state == SWEEP_DONE ? COMPLETE : state == SWEEP_STOPPED ? PRUNED : FAIL;
}

/* Write the distribution of a parameter: JSON in a JSON text. */
static gp_status put_distribution(gp_json_writer *writer, const gp_space_parameter *p, gp_error *err)
{
    gp_json_writer inner;
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, FILE_BYTES_MAX);
    gp_json_writer_init(&inner, &text, false);
    gp_json_begin_object(&inner, NULL);
    gp_json_put_text(&inner, "name",
                     p->kind == GP_SPACE_LIST      ? "CategoricalDistribution"
                     : p->kind == GP_SPACE_INTEGER ? "IntDistribution"
                                                   : "FloatDistribution");
    gp_json_begin_object(&inner, "attributes");
    if (p->kind == GP_SPACE_LIST) {
        gp_json_begin_array(&inner, "choices");
        for (uint32_t i = 0; i < p->count; i++)
            if (p->values[i].is_text)
                gp_json_put_text(&inner, NULL, p->values[i].text);
            else if (p->values[i].is_bool)
                gp_json_put_bool(&inner, NULL, p->values[i].number != 0);
            else
                gp_json_put_number(&inner, NULL, p->values[i].number);
        gp_json_end_array(&inner);
    } else {
        if (p->kind == GP_SPACE_INTEGER)
            gp_json_put_integer(&inner, "step", 1);
        else
            gp_json_put_null(&inner, "step");
        gp_json_put_number(&inner, "low", p->low);
        gp_json_put_number(&inner, "high", p->high);
        gp_json_put_bool(&inner, "log", p->logarithmic);
    }
    gp_json_end_object(&inner);
    gp_json_end_object(&inner);
    status = gp_json_writer_finish(&inner, err);
    if (status == GP_OK)
        gp_json_put_text(writer, p->name, gp_buffer_text(&text));
    gp_buffer_deinit(&text);
    return status;
}

/* Set the times of a trial as Optuna writes them. false: unknown. */
static bool read_times(char began[40], char ended[40], const sweep_folder *folder, uint32_t number)
{
    static const char *const files[] = { "facts.json", "end.json" }, *const members[] = { "began", "ended" };
    char path[PATH], *const out[] = { began, ended };
    bool found = true;

    sweep_folder_trial(folder, number, NULL, path);
    for (int i = 0; i < 2; i++) {
        gp_json *document;
        const char *text;
        size_t bytes;

        run_document_read(&document, path, files[i], NULL);
        text = gp_json_text(gp_json_member(document, members[i]), "");
        bytes = strlen(text);
        /* Python before 3.11 does not read the Z of "2026-11-23T19:46:03.250Z". */
        found = found && bytes > 0 && text[bytes - 1] == 'Z' && bytes < 30;
        if (found)
            snprintf(out[i], 40, "%.*s000+00:00", (int)bytes - 1, text);
        gp_json_free(document);
    }
    return found;
}

static gp_status put_trial(gp_json_writer *writer, const gp_space *space, const sweep_folder *folder,
                           uint32_t number, const sweep_trial *trial, gp_error *err)
{
    char began[40], ended[40], epoch[16];
    const bool timed = read_times(began, ended, folder, number);
    sweep_point point;
    gp_status status = sweep_point_read(&point, space, trial->values, err);

    gp_json_begin_object(writer, NULL);
    gp_json_put_integer(writer, "op_code", CREATE_TRIAL);
    gp_json_put_text(writer, "worker_id", "gradpool");
    gp_json_put_integer(writer, "study_id", 0);
    gp_json_put_integer(writer, "state", optuna_state(trial->state));
    gp_json_put_number(writer, "value", trial->state == SWEEP_FAILED ? NAN : trial->value);
    gp_json_put_null(writer, "values");
    if (timed) {
        gp_json_put_text(writer, "datetime_start", began);
        gp_json_put_text(writer, "datetime_complete", ended);
    } else {
        gp_json_put_null(writer, "datetime_start");
    }
    gp_json_begin_object(writer, "distributions");
    for (uint32_t i = 0; status == GP_OK && i < space->count; i++)
        if (point.applies[i])
            status = put_distribution(writer, &space->parameters[i], err);
    gp_json_end_object(writer);
    gp_json_begin_object(writer, "params");
    for (uint32_t i = 0; status == GP_OK && i < space->count; i++)
        if (point.applies[i]) /* the index of a choice, like the value of a list */
            gp_json_put_number(writer, space->parameters[i].name, point.value[i]);
    gp_json_end_object(writer);
    gp_json_begin_object(writer, "user_attrs");
    gp_json_put_integer(writer, "trial", number);
    gp_json_put_text(writer, "how", trial->how);
    gp_json_put_text(writer, "text", trial->text != NULL ? trial->text : "");
    gp_json_end_object(writer);
    gp_json_begin_object(writer, "system_attrs");
    gp_json_end_object(writer);
    gp_json_begin_object(writer, "intermediate_values");
    snprintf(epoch, sizeof(epoch), "%" PRIu32, trial->epoch);
    if (trial->epoch > 0 && !isnan(trial->value))
        gp_json_put_number(writer, epoch, trial->value);
    gp_json_end_object(writer);
    gp_json_end_object(writer);
    return status;
}

/* Finish a line and begin the next one. */
static gp_status end_line(gp_json_writer *writer, gp_buffer *out, gp_error *err)
{
    gp_status status = gp_json_writer_finish(writer, err);

    if (status == GP_OK)
        status = gp_buffer_append(out, "\n", 1, err);
    gp_json_writer_init(writer, out, false);
    return status;
}

gp_status sweep_export_optuna(const char *path, const sweep *core, const sweep_folder *folder,
                              const sweep_plan *plan, gp_error *err)
{
    const char *name = strrchr(folder->path, '/');
    gp_json_writer writer;
    gp_space *space = NULL;
    gp_buffer out;
    gp_status status = sweep_points_space(&space, plan, err);

    gp_buffer_init(&out, FILE_BYTES_MAX);
    gp_json_writer_init(&writer, &out, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "op_code", CREATE_STUDY);
    gp_json_put_text(&writer, "worker_id", "gradpool");
    gp_json_put_text(&writer, "study_name", name != NULL ? name + 1 : folder->path);
    gp_json_begin_array(&writer, "directions");
    gp_json_put_integer(&writer, NULL, plan->minimize ? MINIMIZE : MAXIMIZE);
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    if (status == GP_OK)
        status = end_line(&writer, &out, err);
    for (uint32_t i = 1; status == GP_OK && i <= sweep_count(core); i++) {
        const sweep_trial *trial = sweep_find(core, i);

        if (trial->state < SWEEP_DONE)
            continue;
        status = put_trial(&writer, space, folder, i, trial, err);
        if (status == GP_OK)
            status = end_line(&writer, &out, err);
    }
    if (status == GP_OK)
        status = gp_file_write(path, gp_buffer_text(&out), out.bytes, err);
    gp_buffer_deinit(&out);
    gp_space_free(space);
    return status;
}
