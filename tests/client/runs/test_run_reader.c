/* test_run_reader.c: lines of metrics.jsonl that are incomplete or too long, replaced files, and
 * the summary of a training without an end. */
#include "client/runs/run_reader.h"
#include "client/runs/run_summary.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "tests/gp_test.h"

static char folder[64];

static void folder_make(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gp-test-run-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
}

static void folder_remove(const char *name)
{
    char path[100];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
    rmdir(folder);
}

/* Write text to a file of the folder. */
static void put(const char *name, const char *mode, const char *text)
{
    char path[100];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, mode);
    CHECK(file != NULL && fputs(text, file) != EOF);
    fclose(file);
}

static const char *next(run_lines *lines)
{
    size_t bytes;
    const char *line = run_lines_next(lines, &bytes);

    CHECK(line == NULL || strlen(line) == bytes);
    return line != NULL ? line : "(none)";
}

TEST(lines_are_read_as_they_become_complete)
{
    run_lines *lines;

    folder_make();
    lines = run_lines_new(folder, "metrics.jsonl");
    CHECK_TEXT("(none)", next(lines));
    put("metrics.jsonl", "w", "{\"step\": 1}\n{\"st");
    CHECK_TEXT("{\"step\": 1}", next(lines));
    CHECK_TEXT("(none)", next(lines));
    put("metrics.jsonl", "a", "ep\": 2}\n\n");
    CHECK_TEXT("{\"step\": 2}", next(lines));
    CHECK_TEXT("", next(lines));
    CHECK_TEXT("(none)", next(lines));
    CHECK(!run_lines_replaced(lines));
    run_lines_free(lines);
    folder_remove("metrics.jsonl");
}

TEST(line_that_is_too_long_is_skipped)
{
    static char text[3 * RUN_LINE_BYTES_MAX];
    run_lines *lines;

    folder_make();
    memset(text, 'x', sizeof(text) - 2);
    text[sizeof(text) - 2] = '\n';
    put("metrics.jsonl", "w", text);
    put("metrics.jsonl", "a", "{}\n");
    text[RUN_LINE_BYTES_MAX] = '\n'; /* the longest line */
    text[RUN_LINE_BYTES_MAX + 1] = '\0';
    put("metrics.jsonl", "a", text);
    lines = run_lines_new(folder, "metrics.jsonl");
    CHECK_TEXT("{}", next(lines));
    CHECK_INT(RUN_LINE_BYTES_MAX, strlen(next(lines)));
    CHECK_TEXT("(none)", next(lines));
    run_lines_free(lines);
    folder_remove("metrics.jsonl");
}

TEST(replaced_file_is_noticed)
{
    char from[100], to[100];
    run_lines *lines;

    folder_make();
    put("metrics.jsonl", "w", "{}\n");
    lines = run_lines_new(folder, "metrics.jsonl");
    CHECK(!run_lines_replaced(lines));
    CHECK_TEXT("{}", next(lines));
    put("new", "w", "{}\n");
    snprintf(from, sizeof(from), "%s/new", folder);
    snprintf(to, sizeof(to), "%s/metrics.jsonl", folder);
    CHECK(rename(from, to) == 0);
    CHECK(run_lines_replaced(lines));
    run_lines_free(lines);
    folder_remove("metrics.jsonl");
}

/* Parse a line and return its kind; -1: malformed. */
static int kind_of(const char *text)
{
    run_line line;

    if (!run_line_parse(&line, text, strlen(text)))
        return -1;
    run_line_deinit(&line);
    return (int)line.kind;
}

TEST(line_kinds_are_distinguished)
{
    CHECK_INT(RUN_LINE_STEP, kind_of("{\"step\": 1, \"loss\": 2, \"time\": {}}"));
    CHECK_INT(RUN_LINE_VALIDATION, kind_of("{\"step\": 1, \"validation_loss\": null}"));
    CHECK_INT(RUN_LINE_RESCALE, kind_of("{\"step\": 1, \"workers_before\": 1, \"workers\": 64}"));
    CHECK_INT(RUN_LINE_OTHER, kind_of("{\"step\": 1, \"workers_before\": 1, \"workers\": 65}"));
    CHECK_INT(RUN_LINE_OTHER, kind_of("{\"step\": 1, \"objective\": 0.5}"));
    CHECK_INT(RUN_LINE_OTHER, kind_of("{\"step\": -1, \"time\": {}}"));
    CHECK_INT(-1, kind_of("[1]"));
    CHECK_INT(-1, kind_of(""));
    CHECK_INT(-1, kind_of("{\"step\": 1"));
}

TEST(part_of_a_file_is_read_from_line_to_line)
{
    static const char part[] = "p\": 2}\n{\"step\": 3}\n\n[1]\n{\"step\": 4}\n{\"step\": 5";
    const char *rest = part;
    run_line line;

    for (int step = 3; step <= 4; step++) {
        REQUIRE(run_line_next(&line, &rest));
        CHECK_INT(step, gp_json_integer(gp_json_member(line.json, "step"), 0));
        run_line_deinit(&line);
    }
    CHECK(!run_line_next(&line, &rest));
    REQUIRE(run_line_last(&line, part));
    CHECK_INT(4, gp_json_integer(gp_json_member(line.json, "step"), 0));
    run_line_deinit(&line);
    CHECK(!run_line_last(&line, "{\"step\": 5}"));
    CHECK(!run_line_last(&line, "\n{\n"));
    CHECK(!run_line_last(&line, ""));
}

TEST(end_of_a_file_is_read_whatever_its_size)
{
    char text[9];

    folder_make();
    run_tail_read(folder, "metrics.jsonl", text, sizeof(text));
    CHECK_TEXT("", text);
    put("metrics.jsonl", "w", "12345678");
    run_tail_read(folder, "metrics.jsonl", text, sizeof(text));
    CHECK_TEXT("12345678", text);
    put("metrics.jsonl", "a", "9");
    run_tail_read(folder, "metrics.jsonl", text, sizeof(text));
    CHECK_TEXT("23456789", text);
    folder_remove("metrics.jsonl");
}

/* Append steps `first` to `last` to metrics.jsonl. */
static void put_steps(int first, int last)
{
    char path[100];
    FILE *file;

    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    file = fopen(path, "a");
    REQUIRE(file != NULL);
    for (int step = first; step <= last; step++)
        fprintf(file,
                "{\"step\": %d, \"epoch\": 2, \"seconds\": %d, \"loss\": 0.5, \"time\": {\"data\": 0}}\n",
                step, step);
    CHECK(fclose(file) == 0);
}

TEST(last_validation_of_a_killed_training_is_found_before_many_steps)
{
    run_line line;
    run_summary run;

    folder_make();
    CHECK(!run_validation_last(&line, folder));
    put("metrics.jsonl", "w", "{\"step\": 1, \"validation_loss\": 0.75, \"validation_accuracy\": 0.5}\n");
    put_steps(2, 5000); /* several blocks of the reader */
    REQUIRE(run_validation_last(&line, folder));
    CHECK(line.validation.loss == 0.75);
    run_line_deinit(&line);
    put("metrics.jsonl", "a",
        "{\"step\": 5000, \"validation_loss\": 0.25, \"validation_accuracy\": 0.875}\n");
    put_steps(5001, 8000);
    put("metrics.jsonl", "a", "{\"step\": 8000, \"validation_loss\": 0.12"); /* incomplete */
    put("job.json", "w", "{\"began\": \"2026-11-28T20:00:00Z\"}");
    REQUIRE(run_summary_read(&run, folder, NULL) == GP_OK);
    CHECK_TEXT("killed", run.state);
    CHECK_INT(8000, run.steps);
    CHECK(run.accuracy == 0.875 && run.validation_loss == 0.25);
    run_summary_deinit(&run);
    put("metrics.jsonl", "w", "");
    put_steps(1, 300000); /* too far from the end */
    CHECK(!run_validation_last(&line, folder));
    folder_remove("job.json");
    folder_remove("metrics.jsonl");
}

TEST(rescale_line_has_workers_and_cause)
{
    static const char text[] =
        "{\"step\": 7, \"workers_before\": 1, \"workers\": 2, \"worker_index\": [3, 5], "
        "\"paused_seconds\": 0.5, \"died\": true, \"cause\": \"killed\"}";
    run_line line;

    CHECK(run_line_parse(&line, text, strlen(text)));
    CHECK_INT(RUN_LINE_RESCALE, line.kind);
    CHECK_INT(7, line.rescale.step);
    CHECK_INT(2, line.rescale.workers);
    CHECK_INT(5, line.rescale.worker_index[1]);
    CHECK(line.rescale.died && line.rescale.seconds == 0.5);
    CHECK_TEXT("killed", line.rescale.cause);
    run_line_deinit(&line);
}

TEST(facts_of_old_folders_are_read)
{
    gp_train_info info;

    folder_make();
    CHECK(!run_info_read(&info, folder));
    put("facts.json", "w", "{\"workers\": 2, \"worker_index\": [1, 4], \"steps_per_epoch\": 10}");
    CHECK(run_info_read(&info, folder));
    CHECK_INT(2, info.workers);
    CHECK_INT(4, info.worker_index[1]);
    CHECK_INT(10, info.steps_per_epoch);
    CHECK_INT(0, info.epochs);
    put("facts.json", "w", "{\"workers\": 65}");
    CHECK(run_info_read(&info, folder));
    CHECK_INT(0, info.workers);
    put("facts.json", "w", "{\"workers\"");
    CHECK(!run_info_read(&info, folder));
    folder_remove("facts.json");
}

/* Replace a file by a link to itself, which open() refuses with ELOOP; EACCES and EIO have the same
 * effect. */
static void put_unreadable(const char *name)
{
    char path[100];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
    CHECK(symlink(name, path) == 0);
}

TEST(missing_malformed_and_unreadable_documents_are_distinguished)
{
    gp_json *json;
    gp_error err;

    folder_make();
    CHECK_STATUS(GP_ENOENT, run_document_read(&json, folder, "job.json", &err));
    put("end.json", "w", "{\"records\": {\"facts.json\": {\"batch\": 7}}}");
    CHECK_STATUS(GP_ENOENT, run_document_read(&json, folder, "job.json", &err));
    CHECK_STATUS(GP_OK, run_document_read(&json, folder, "facts.json", &err));
    CHECK_INT(7, gp_json_integer(gp_json_member(json, "batch"), 0));
    gp_json_free(json);
    put("job.json", "w", "{\"pid\"");
    CHECK_STATUS(GP_ECORRUPT, run_document_read(&json, folder, "job.json", &err));
    CHECK_CONTAINS(err.message, "/job.json: malformed JSON");
    CHECK(json == NULL);
    put_unreadable("job.json");
    CHECK_STATUS(GP_EIO, run_document_read(&json, folder, "job.json", &err));
    put_unreadable("end.json"); /* it may have the facts */
    CHECK_STATUS(GP_EIO, run_document_read(&json, folder, "facts.json", &err));
    folder_remove("job.json");
    folder_remove("end.json");
}

TEST(run_with_an_unreadable_file_is_neither_killed_nor_missing)
{
    static const char *const files[] = { "end.json", "writer.lock", "job.json" };
    run_summary run;
    gp_error err;

    folder_make();
    CHECK_STATUS(GP_ENOENT, run_summary_read(&run, folder, &err));
    CHECK_CONTAINS(err.message, "is not a run folder");
    put("job.json", "w", "{\"began\": \"2026-11-28T20:00:00Z\"}");
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        put_unreadable(files[i]);
        REQUIRE_OK(run_summary_read(&run, folder, &err), err);
        CHECK_TEXT("unreadable", run.state);
        CHECK_CONTAINS(run.reason, files[i]);
        run_summary_deinit(&run);
        folder_remove(files[i]);
    }
}

TEST(path_of_any_length_is_read_and_written)
{
    char path[1200], note[sizeof(path) + 20];
    size_t used;
    run_summary run;
    gp_error err;

    folder_make();
    used = (size_t)snprintf(path, sizeof(path), "%s", folder);
    while (used < 1000) {
        used += (size_t)snprintf(path + used, sizeof(path) - used, "/%0200d", 0);
        REQUIRE(mkdir(path, 0700) == 0);
    }
    snprintf(note, sizeof(note), "%s/job.json", path);
    REQUIRE_OK(gp_file_write(note, "{}", 2, &err), err);
    REQUIRE_OK(run_note_write(path, "deep", &err), err);
    strcat(path, "//");
    REQUIRE_OK(run_summary_read(&run, path, &err), err);
    path[used] = '\0';
    CHECK_TEXT(path, run.folder);
    CHECK_TEXT("deep", run.note);
    run_summary_deinit(&run);
    gp_directory_remove(folder);
}
