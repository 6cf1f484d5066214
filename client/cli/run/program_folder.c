/* Implement program_folder.h. */
#include "client/cli/run/program_folder.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/show.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"

enum { PATH = sizeof(((program_folder *)0)->path) + 40, SIGNAL_CODE = 128 };

bool program_folder_number(const char *line, double *out)
{
    bool found = false;
    char before = ' ', *end;

    for (const char *at = line; *at != '\0'; before = at[-1]) {
        /* A number may follow a blank or a character such as '=' or '(', but no letter, digit, '_'
         * or '.'. */
        const bool begins = !isalnum((unsigned char)before) && before != '_' && before != '.';
        double number = begins && !isspace((unsigned char)*at) ? strtod(at, &end) : 0;

        if (!begins || isspace((unsigned char)*at) || end == at || isalpha((unsigned char)*end) ||
            *end == '_') {
            at++;
            continue;
        }
        *out = number;
        found = true;
        at = end;
    }
    return found;
}

/* ---- files ---- */

static void path_of(const program_folder *folder, const char *name, char path[PATH])
{
    snprintf(path, PATH, "%s/%s", folder->path, name);
}

gp_status program_folder_open(program_folder *folder, const char *path, gp_error *err)
{
    static const char *const earlier[] = { "metrics.jsonl", "end.json" };
    char file[PATH], *absolute = NULL;
    int fd;
    gp_status status = gp_directory_make(path, 0777, err);

    *folder = (program_folder){ .log = -1 };
    if (status == GP_OK && (absolute = realpath(path, NULL)) == NULL)
        status = gp_fail_errno(err, GP_EIO, "cannot open the folder %s", path);
    if (status == GP_OK && strlen(absolute) >= sizeof(folder->path))
        status = gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", absolute);
    if (status == GP_OK)
        snprintf(folder->path, sizeof(folder->path), "%s", absolute);
    free(absolute);
    for (size_t i = 0; status == GP_OK && i < sizeof(earlier) / sizeof(earlier[0]); i++) {
        path_of(folder, earlier[i], file);
        if (unlink(file) != 0 && errno != ENOENT)
            status = gp_fail_errno(err, GP_EIO, "cannot remove %s of an earlier run", file);
    }
    if (status != GP_OK)
        return status;
    path_of(folder, "log", file);
    folder->log = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (folder->log < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write %s", file);
    path_of(folder, "metrics.jsonl", file);
    fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write %s", file);
    close(fd);
    setenv("GRADPOOL_METRICS", file, true);
    setenv("GRADPOOL_RUN_FOLDER", folder->path, true);
    return GP_OK;
}

/* ---- output ---- */

/* Record the last number of a complete line of standard output. */
static void take_number(program_folder *folder)
{
    double number;

    if (!program_folder_number(folder->lines[0].text, &number))
        return;
    folder->number = isfinite(number) ? number : NAN;
    folder->has_number = true;
}

void program_folder_output(void *context, int which, const char *text, size_t bytes)
{
    program_folder *folder = context;

    (void)gp_write_all(folder->log, text, bytes); /* only a copy: the job has its own log */
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n' || text[i] == '\r') {
            if (which == 0 && !folder->lines[0].complete)
                take_number(folder);
            folder->lines[which].complete = true;
            continue;
        }
        if (folder->lines[which].complete)
            folder->lines[which].bytes = 0;
        folder->lines[which].complete = false;
        if (folder->lines[which].bytes + 1 == PROGRAM_FOLDER_LINE_BYTES)
            continue;
        folder->lines[which].text[folder->lines[which].bytes++] = text[i];
        folder->lines[which].text[folder->lines[which].bytes] = '\0';
    }
}

/* ---- end ---- */

/* Describe how the program failed: the exit code, and its last line of standard error. */
static void put_reason(gp_json_writer *writer, const program_folder *folder, int code)
{
    char text[PROGRAM_FOLDER_LINE_BYTES + 60];

    snprintf(text, sizeof(text), code > SIGNAL_CODE ? "signal %d%s%.400s" : "exit code %d%s%.400s",
             code > SIGNAL_CODE ? code - SIGNAL_CODE : code, folder->lines[1].bytes > 0 ? ": " : "",
             folder->lines[1].text);
    gp_json_put_text(writer, "reason", text);
}

/* Return whether something other than the program ended a run: gradpool failed, or a signal ended
 * the program. A cluster sends such signals at the end of an allocation, and the kernel when memory
 * runs out. */
static bool was_lost(const command_set_result *result)
{
    static const int outside[] = { SIGHUP, SIGINT, SIGKILL, SIGTERM };

    if (result == NULL || (result->first_code == COMMAND_SET_ERROR && !result->interrupted))
        return true;
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
        if (!result->interrupted && result->first_code == SIGNAL_CODE + outside[i])
            return true;
    return false;
}

void program_folder_close(program_folder *folder, const command_set_result *result)
{
    json_document json;
    char path[PATH];
    gp_error err;

    if (folder->log < 0)
        return;
    close(folder->log);
    folder->log = -1;
    if (was_lost(result))
        return;
    if (!folder->lines[0].complete)
        take_number(folder);
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_put_text(writer, "state",
                     result->interrupted       ? "stopped"
                     : result->first_code != 0 ? "failed"
                                               : "completed");
    if (!result->interrupted && result->first_code != 0)
        put_reason(writer, folder, result->first_code);
    gp_json_put_integer(writer, "code", result->first_code);
    if (folder->has_number)
        gp_json_put_number(writer, "number", folder->number);
    path_of(folder, "end.json", path);
    if (show_json_write(&json, path, &err) != GP_OK)
        fprintf(stderr, "the result of the run is lost: %s\n", err.message);
}
