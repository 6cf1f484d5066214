/* Implement trial_pack.h. */
#include "client/sweep/trial_pack.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/runs/run_reader.h"
#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/base/printable.h"
#include "common/base/system/directory.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"

static const char *const documents[] = { "job.json", "facts.json" };
enum { DOCUMENTS = sizeof(documents) / sizeof(documents[0]) };

static gp_status put_member(void *context, const char *key, const gp_json *value, gp_error *err)
{
    (void)err;
    gp_json_put_value(context, key, value);
    return GP_OK;
}

/* Write the lines of workers.jsonl as an array, if the file exists. Return false if it does not
 * fit, or if a line is malformed. */
static bool put_lines(gp_json_writer *writer, const char *folder)
{
    run_lines *lines = run_lines_new(folder, "workers.jsonl");
    const char *text;
    size_t bytes, sum = 0;
    bool valid = lines != NULL;

    gp_json_begin_array(writer, "workers.jsonl");
    while (valid && (text = run_lines_next(lines, &bytes)) != NULL) {
        gp_json *line = NULL;

        sum += bytes;
        valid = sum <= TRIAL_PACK_BYTES_MAX && gp_json_parse(&line, text, bytes, NULL) == GP_OK;
        if (valid)
            gp_json_put_value(writer, NULL, line);
        gp_json_free(line);
    }
    gp_json_end_array(writer);
    valid = valid && !run_lines_failed(lines);
    run_lines_free(lines);
    return valid;
}

/* Write the log as a text, if the file exists. Return false if it is too long or is not valid
 * UTF-8. */
static bool put_log(gp_json_writer *writer, const char *folder)
{
    char path[PATH_MAX];
    uint8_t *text = NULL;
    size_t bytes;
    gp_status status;

    snprintf(path, sizeof(path), "%s/log", folder);
    status = gp_file_read(&text, &bytes, path, TRIAL_PACK_BYTES_MAX, NULL);
    const bool fits = status == GP_ENOENT ||
                      (status == GP_OK && memchr(text, '\0', bytes) == NULL && gp_utf8_valid(text, bytes));

    if (status == GP_OK && fits)
        gp_json_put_text(writer, "log", (const char *)text);
    gp_free(text);
    return fits;
}

/* Write the packed document to `out`. false: it is too large, or a file cannot be read. */
static bool encode(gp_buffer *out, const char *folder, const gp_json *end)
{
    gp_json_writer writer;
    bool fits = true;

    gp_json_writer_init(&writer, out, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_each(end, put_member, &writer, NULL);
    gp_json_begin_object(&writer, "records");
    for (int i = 0; i < DOCUMENTS; i++) {
        gp_json *document;
        const gp_status status = run_document_read(&document, folder, documents[i], NULL);

        if (status == GP_OK)
            gp_json_put_value(&writer, documents[i], document);
        fits = fits && (status == GP_OK || status == GP_ENOENT);
        gp_json_free(document);
    }
    fits = fits && put_lines(&writer, folder) && put_log(&writer, folder);
    gp_json_end_object(&writer);
    gp_json_end_object(&writer);
    return gp_json_writer_finish(&writer, NULL) == GP_OK && fits;
}

static void remove_file(const char *folder, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
}

gp_status trial_pack(const char *folder, gp_error *err)
{
    gp_json *end;
    char path[PATH_MAX];
    gp_buffer text;
    bool packed;
    gp_status status = run_document_read(&end, folder, "end.json", err);

    if (status == GP_ENOENT) /* a trial without a result is not packed */
        status = GP_OK;
    packed = gp_json_member(end, "records") != NULL;
    gp_buffer_init(&text, TRIAL_PACK_BYTES_MAX);
    if (gp_json_is_object(end) && !packed && encode(&text, folder, end)) {
        snprintf(path, sizeof(path), "%s/end.json", folder);
        status = gp_file_write(path, text.data, text.bytes, err);
        packed = status == GP_OK;
        gp_fault_point("sweep-packed");
    }
    if (packed) {
        for (int i = 0; i < DOCUMENTS; i++)
            remove_file(folder, documents[i]);
        remove_file(folder, "workers.jsonl");
        remove_file(folder, "log");
        remove_file(folder, "writer.lock");
    }
    gp_buffer_deinit(&text);
    gp_json_free(end);
    return status;
}

void trial_remove_model(const sweep_folder *folder, uint32_t trial)
{
    char path[SWEEP_PATH_MAX + 100];

    sweep_folder_trial(folder, trial, "/result/model.onnx", path);
    unlink(path);
    sweep_folder_trial(folder, trial, "/result", path);
    rmdir(path); /* keep it if it has other files */
}

gp_status trial_clean(const sweep_folder *folder, uint32_t trial, bool keep_model, bool pack, gp_error *err)
{
    char path[SWEEP_PATH_MAX + 100];
    gp_status status;

    sweep_folder_checkpoints(folder, trial, path);
    gp_directory_remove(path);
    if (!keep_model)
        trial_remove_model(folder, trial);
    sweep_folder_trial(folder, trial, NULL, path);
    status = pack ? trial_pack(path, err) : GP_OK;
    sweep_folder_trial(folder, trial, ".job", path); /* only a trial without an end needs it */
    if (status == GP_OK)
        unlink(path);
    return status;
}
