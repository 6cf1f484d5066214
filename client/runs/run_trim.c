#include "client/runs/run_trim.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/runs/run_reader.h"

/* Return the step of a line to keep; 0: remove the line. A file may have millions of lines, so this
 * function looks for the members that the writer puts there instead of parsing JSON. */
static uint64_t line_step(const char *line, uint64_t steps, uint64_t validations)
{
    static const char key[] = "\"step\": ";
    const char *step = strstr(line, key);
    const uint64_t number = step == NULL || line[0] != '{' ? 0 : strtoull(step + strlen(key), NULL, 10);

    return number <= (strstr(line, "\"validation_loss\": ") != NULL ? validations : steps) ? number : 0;
}

gp_status run_trim(const char *folder, const char *name, uint64_t steps, uint64_t validations, uint64_t *last,
                   gp_error *err)
{
    char path[700], scratch[720];
    const char *line;
    size_t bytes;
    uint64_t step, kept = 0;
    run_lines *lines;
    FILE *out;
    bool written = true;

    if (last != NULL)
        *last = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (access(path, F_OK) != 0)
        return GP_OK;
    snprintf(scratch, sizeof(scratch), "%s.new", path);
    lines = run_lines_new(folder, name);
    if (lines == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to read %s", path);
    out = fopen(scratch, "we");
    if (out == NULL) {
        run_lines_free(lines);
        return gp_fail_errno(err, GP_EIO, "cannot write %s", scratch);
    }
    while (written && (line = run_lines_next(lines, &bytes)) != NULL)
        if ((step = line_step(line, steps, validations)) != 0) {
            written = fwrite(line, 1, bytes, out) == bytes && putc('\n', out) != EOF;
            kept = step;
        }
    if (last != NULL)
        *last = kept;
    if (run_lines_failed(lines)) {
        gp_fail_errno(err, GP_EIO, "cannot read %s", path);
        run_lines_free(lines);
        fclose(out);
        unlink(scratch);
        return GP_EIO;
    }
    run_lines_free(lines);
    written = fflush(out) == 0 && written;
    written = fclose(out) == 0 && written;
    if (written && rename(scratch, path) == 0)
        return GP_OK;
    gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    unlink(scratch);
    return GP_EIO;
}
