#include "client/runs/run_trim.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/runs/run_reader.h"
#include "common/base/system/file.h"

/* Return the step of a line to keep; 0: remove the line. A file may have millions of lines, so this
 * function looks for the members that the writer puts there instead of parsing JSON. */
static uint64_t line_step(const char *line, uint64_t steps, uint64_t validations)
{
    static const char key[] = "\"step\": ";
    const char *step = strstr(line, key);
    const uint64_t number = step == NULL || line[0] != '{' ? 0 : strtoull(step + strlen(key), NULL, 10);

    return number <= (strstr(line, "\"validation_loss\": ") != NULL ? validations : steps) ? number : 0;
}

/* Copy the lines to keep. false: a line cannot be written. */
static bool copy_lines(FILE *out, run_lines *lines, uint64_t steps, uint64_t validations, uint64_t *last)
{
    const char *line;
    size_t bytes;

    while ((line = run_lines_next(lines, &bytes)) != NULL) {
        const uint64_t step = line_step(line, steps, validations);

        if (step == 0)
            continue;
        if (fwrite(line, 1, bytes, out) != bytes || putc('\n', out) == EOF)
            return false;
        *last = step;
    }
    return true;
}

gp_status run_trim(const char *folder, const char *name, uint64_t steps, uint64_t validations, uint64_t *last,
                   gp_error *err)
{
    char path[RUN_PATH_BYTES];
    uint64_t kept = 0;
    gp_file_draft draft = { .fd = -1 };
    run_lines *lines;
    FILE *out;
    gp_status status;

    if (last != NULL)
        *last = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (access(path, F_OK) != 0)
        return GP_OK;
    lines = run_lines_new(folder, name);
    if (lines == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to read %s", path);
    status = gp_file_draft_stream(&out, &draft, path, err);
    if (status == GP_OK) {
        bool written = copy_lines(out, lines, steps, validations, &kept);

        written = fclose(out) == 0 && written;
        if (!written)
            status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    }
    if (status == GP_OK && run_lines_failed(lines))
        status = gp_fail(err, GP_EIO, "cannot read %s", path);
    if (status == GP_OK)
        status = gp_file_draft_commit(&draft, err);
    gp_file_draft_discard(&draft);
    run_lines_free(lines);
    if (status == GP_OK && last != NULL)
        *last = kept;
    return status;
}
