/* Engine `command`: commands of the user launch, list and cancel the jobs.
 *
 * The commands are words without a shell. The launch command gets a script in the job folder, which
 * runs the job on the host where the engine starts it. Output is parsed strictly, because a listing
 * that is misread could end or repeat a job:
 *   launch   one line: the id of the job. Exit code 1 to 127: refused, there is no job. 128 and
 *            more (a signal, or ssh without a connection) and malformed output: unknown
 *   status   lines "ID NAME STATE [REASON]" for all jobs; those without a launch name are skipped
 *   cancel   only the exit code counts */
#include "client/cluster/command.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "client/cluster/job_folder.h"
#include "client/cluster/profile.h"
#include "client/cluster/tool.h"
#include "common/base/printable.h"
#include "common/base/system/file.h"

enum {
    FILLED_BYTES_MAX = 1 << 16, /* a command line with values */
    LINE_BYTES_MAX = 1024,      /* a line of the listing */
    LAUNCH_OUTPUT_MAX = 4096,
    CANCEL_OUTPUT_MAX = 1 << 16,
    UNKNOWN_CODE = 128 /* smallest exit code of a launch with unknown outcome */
};

int cluster_command_timeout_ms = CLUSTER_CALL_MS;

/* ---- command lines ---- */

/* Value of a placeholder. */
typedef struct place {
    const char *name;
    const char *value; /* NULL: not set by the profile */
} place;

/* A command line with values in place of its placeholders. */
typedef struct filled {
    gp_buffer text; /* words, each with a NUL at its end */
    const char *words[GP_PROFILE_WORDS_MAX + 1];
} filled;

/* Append one word with the values of its placeholders.
 *   places  ends with a NULL name */
static gp_status word_fill(gp_buffer *text, const char *word, const place *places, gp_error *err)
{
    gp_status status = GP_OK;

    while (*word != '\0' && status == GP_OK) {
        const size_t bytes = strcspn(word, "{"), name = strcspn(word + bytes, "}");
        const place *at = places;

        status = gp_buffer_append(text, word, bytes, err);
        word += bytes;
        if (status != GP_OK || *word == '\0')
            break;
        while (at->name != NULL &&
               (strlen(at->name) != name - 1 || strncmp(at->name, word + 1, name - 1) != 0))
            at++;
        if (at->name == NULL || word[name] == '\0') /* the profile check refuses these */
            return gp_fail(err, GP_EINVAL, "unknown placeholder in '%.40s'", word);
        if (at->value == NULL)
            return gp_fail(err, GP_EINVAL, "the command needs {%s}; add the setting '%s' to the profile",
                           at->name, at->name);
        status = gp_buffer_append(text, at->value, strlen(at->value), err);
        word += name + 1;
    }
    return status == GP_OK ? gp_buffer_append(text, "", 1, err) : status;
}

/* Split a command line and fill in values. Free *out with gp_buffer_deinit(&out->text), also after
 * an error. */
static gp_status line_fill(filled *out, const char *line, const place *places, gp_error *err)
{
    gp_profile_words words;
    gp_status status = gp_profile_words_split(&words, line, err);

    gp_buffer_init(&out->text, FILLED_BYTES_MAX);
    for (uint32_t i = 0; status == GP_OK && i < words.count; i++)
        status = word_fill(&out->text, words.word[i], places, err);
    if (status != GP_OK)
        return status;
    const char *at = gp_buffer_text(&out->text);

    for (uint32_t i = 0; i < words.count; i++, at += strlen(at) + 1)
        out->words[i] = at;
    out->words[words.count] = NULL;
    return GP_OK;
}

/* Fill in a command line and run it. Errors as for cluster_tool_run(); errors of the command line
 * are GP_EINVAL. *tool refers to *out. */
static gp_status line_run(filled *out, cluster_tool *tool, cluster_tool_result *result, const char *line,
                          const place *places, gp_error *err)
{
    gp_status status = line_fill(out, line, places, err);

    if (status != GP_OK)
        return status;
    tool->words = out->words;
    tool->drop = cluster_job_variables;
    tool->timeout_ms = cluster_command_timeout_ms;
    return cluster_tool_run(result, tool, err);
}

/* ---- launch ---- */

/* Append a line that notes a missing program in engine.out. Most engines keep the output of a
 * script elsewhere, or nowhere. */
static gp_status script_search(const gp_profile *profile, const cluster_launch *launch, gp_buffer *out,
                               gp_error *err)
{
    gp_status status = gp_buffer_printf(out, err, "command -v ");

    if (status == GP_OK)
        status = gp_buffer_shell_word(out, profile->gradpool, err);
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, " > /dev/null || echo \"$(uname -n): no program\" ");
    if (status == GP_OK)
        status = gp_buffer_shell_word(out, profile->gradpool, err);
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, " \"in PATH ($PATH)\" >> ");
    if (status == GP_OK)
        status = gp_buffer_shell_word(out, launch->folder, err);
    return status == GP_OK ? gp_buffer_printf(out, err, "/engine.out\n") : status;
}

/* Append the script that runs the job. The variables are those of cluster_allocation_open(). */
static gp_status command_script(const gp_profile *profile, const cluster_launch *launch, gp_buffer *out,
                                gp_error *err)
{
    int64_t mib = 0;
    gp_status status = profile->memory[0] == '\0' ? GP_OK : gp_profile_memory_mib(profile->memory, &mib, err);

    if (status == GP_OK)
        status = gp_buffer_printf(out, err,
                                  "#!/bin/sh\n# gradpool job %s\nexport GRADPOOL_ALLOCATION_ID=%s\n"
                                  "export GRADPOOL_ALLOCATION_GPUS=%" PRId64 "\n",
                                  launch->name, launch->name, profile->gpus);
    if (status == GP_OK && profile->cores > 0)
        status = gp_buffer_printf(out, err, "export GRADPOOL_ALLOCATION_CORES=%" PRId64 "\n", profile->cores);
    if (status == GP_OK && mib > 0)
        status = gp_buffer_printf(out, err, "export GRADPOOL_ALLOCATION_MEMORY_MIB=%" PRId64 "\n", mib);
    if (status == GP_OK)
        status = script_search(profile, launch, out, err);
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, "exec ");
    if (status == GP_OK)
        status = gp_buffer_shell_word(out, profile->gradpool, err);
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, " job-attempt ");
    if (status == GP_OK)
        status = gp_buffer_shell_word(out, launch->folder, err);
    return status == GP_OK ? gp_buffer_printf(out, err, "\n") : status;
}

/* Write the script to the job folder. */
static gp_status script_write(const gp_profile *profile, const cluster_launch *launch, char path[PATH_MAX],
                              gp_error *err)
{
    gp_file_draft draft;
    gp_buffer text;
    gp_status status;

    if (snprintf(path, PATH_MAX, "%s/script", launch->folder) >= PATH_MAX)
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", launch->folder);
    gp_buffer_init(&text, FILLED_BYTES_MAX);
    status = command_script(profile, launch, &text, err);
    if (status == GP_OK)
        status = gp_file_draft_open(&draft, path, err);
    if (status == GP_OK && (fchmod(draft.fd, 0700) != 0 || !gp_write_all(draft.fd, text.data, text.bytes))) {
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
        gp_file_draft_discard(&draft);
    } else if (status == GP_OK) {
        status = gp_file_draft_commit(&draft, err);
    }
    gp_buffer_deinit(&text);
    return status;
}

/* Texts of the values of a launch. */
typedef struct launch_values {
    char cores[24], gpus[24], memory[24], time[32], minutes[24];
} launch_values;

/* Format the values that the profile and the launch set; those not set stay empty. */
static gp_status values_format(launch_values *out, const gp_profile *profile, const cluster_launch *launch,
                               gp_error *err)
{
    int64_t seconds = launch->time_s, mib;
    gp_status status = GP_OK;

    *out = (launch_values){ 0 };
    if (profile->cores > 0)
        snprintf(out->cores, sizeof(out->cores), "%" PRId64, profile->cores);
    snprintf(out->gpus, sizeof(out->gpus), "%" PRId64, profile->gpus);
    if (profile->memory[0] != '\0') {
        status = gp_profile_memory_mib(profile->memory, &mib, err);
        if (status == GP_OK)
            snprintf(out->memory, sizeof(out->memory), "%" PRId64, mib);
    }
    if (status == GP_OK && seconds == 0 && profile->time[0] != '\0')
        status = gp_profile_time_s(profile->time, &seconds, err);
    if (status == GP_OK && seconds > 0) {
        snprintf(out->time, sizeof(out->time), "%02" PRId64 ":%02d:%02d", seconds / 3600,
                 (int)(seconds / 60 % 60), (int)(seconds % 60));
        snprintf(out->minutes, sizeof(out->minutes), "%" PRId64, (seconds + 59) / 60);
    }
    return status;
}

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

/* Return whether a text is an id: letters, digits and . _ -, not beginning with '-'. */
static bool id_sound(const char *text, size_t bytes)
{
    return bytes > 0 && bytes < CLUSTER_ID_BYTES && text[0] != '-' &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") >= bytes;
}

/* Copy text to `out` for a message: printable, without newlines, truncated. */
static const char *shown(char out[120], const char *text, size_t bytes)
{
    snprintf(out, 120, "%.*s", (int)(bytes < 119 ? bytes : 119), text);
    return gp_printable(out);
}

/* Take the id from the output of the launch command. */
static gp_status id_parse(const gp_buffer *output, const char *program, char id[CLUSTER_ID_BYTES],
                          gp_error *err)
{
    const char *text = gp_buffer_text(output);
    const size_t bytes = strcspn(text, "\n");
    char line[120];

    if (!id_sound(text, bytes) || bytes + 1 < output->bytes)
        return gp_fail(err, GP_EPEER,
                       "the launch command '%s' printed '%s'; it must print one line with the id of the job "
                       "(letters, digits and . _ -)",
                       program, shown(line, text, output->bytes));
    snprintf(id, CLUSTER_ID_BYTES, "%.*s", (int)bytes, text);
    return GP_OK;
}

static gp_status command_launch(const gp_profile *profile, const cluster_launch *launch,
                                char id[CLUSTER_ID_BYTES], gp_error *err)
{
    cluster_tool tool = { .output_max = LAUNCH_OUTPUT_MAX };
    cluster_tool_result result = { 0 };
    launch_values values;
    char script[PATH_MAX];
    filled line;
    gp_status status = values_format(&values, profile, launch, err);

    if (status == GP_OK)
        status = script_write(profile, launch, script, err);
    if (status != GP_OK)
        return status;
    const place places[] = { { "script", script },
                             { "name", launch->name },
                             { "folder", launch->folder },
                             { "gpus", values.gpus },
                             { "cores", or_null(values.cores) },
                             { "memory", or_null(values.memory) },
                             { "time", or_null(values.time) },
                             { "minutes", or_null(values.minutes) },
                             { NULL, NULL } };

    status = line_run(&line, &tool, &result, profile->launch, places, err);
    if (status == GP_ELIMIT)
        status = GP_EPEER; /* the command was killed; it may have launched the job */
    else if (status == GP_OK && result.code != 0)
        status = cluster_tool_fail(err, result.code < UNKNOWN_CODE ? GP_EINVAL : GP_EPEER, &tool, &result);
    else if (status == GP_OK)
        status = id_parse(&result.output, line.words[0], id, err);
    cluster_tool_deinit(&result);
    gp_buffer_deinit(&line.text);
    return status;
}

/* ---- list ---- */

/* Words for the states of a job in a listing. */
static const struct state_word {
    const char *word;
    cluster_entry_state state;
} state_words[] = {
    { "queued", CLUSTER_ENTRY_QUEUED },    { "pending", CLUSTER_ENTRY_QUEUED },
    { "held", CLUSTER_ENTRY_QUEUED },      { "suspended", CLUSTER_ENTRY_QUEUED },
    { "starting", CLUSTER_ENTRY_RUNNING }, { "running", CLUSTER_ENTRY_RUNNING },
    { "ending", CLUSTER_ENTRY_RUNNING },   { "ended", CLUSTER_ENTRY_ENDED },
    { "completed", CLUSTER_ENTRY_ENDED },  { "failed", CLUSTER_ENTRY_ENDED },
    { "canceled", CLUSTER_ENTRY_ENDED },
};

static const struct state_word *state_find(const char *word)
{
    for (size_t i = 0; i < sizeof(state_words) / sizeof(state_words[0]); i++)
        if (strcasecmp(word, state_words[i].word) == 0)
            return &state_words[i];
    return NULL;
}

/* Return the next word of a line and move *at behind it; NULL: no further word. Modifies the
 * line. */
static char *word_next(char **at)
{
    char *word = *at + strspn(*at, " \t");
    const size_t bytes = strcspn(word, " \t");

    if (bytes == 0)
        return NULL;
    *at = word + bytes + (word[bytes] != '\0');
    word[bytes] = '\0';
    return word;
}

/* Parse one line of the listing. Lines of other jobs are skipped if they have a state: another
 * text, such as the reply to a launch, must not pass for a listing without jobs. The message of an
 * error is the fault alone. Modifies `line`. */
static gp_status line_parse(cluster_listing *listing, char *line, gp_error *err)
{
    char *rest = line;
    const char *id = word_next(&rest), *name = word_next(&rest), *state = word_next(&rest);
    const struct state_word *known;
    cluster_entry *entry;

    if (id == NULL)
        return gp_fail(err, GP_EPEER, "an empty line");
    if (state == NULL)
        return gp_fail(err, GP_EPEER, "fewer than three words; a line is ID NAME STATE [REASON]");
    known = state_find(state);
    if (known == NULL)
        return gp_fail(err, GP_EPEER, "the state '%.20s' is unknown; use queued, running or ended",
                       gp_printable((char *)(uintptr_t)state));
    if (!cluster_name_valid(name))
        return GP_OK;
    if (!id_sound(id, strlen(id)))
        return gp_fail(err, GP_EPEER, "the id must consist of letters, digits and . _ -");
    gp_status status = cluster_listing_add(listing, &entry, err);

    if (status != GP_OK)
        return status;
    strcpy(entry->id, id);
    strcpy(entry->name, name);
    entry->state = known->state;
    snprintf(entry->text, sizeof(entry->text), "%s", state);
    rest += strspn(rest, " \t");
    snprintf(entry->reason, sizeof(entry->reason), "%s", rest);
    gp_printable(entry->reason);
    return GP_OK;
}

static int entries_compare(const void *a, const void *b)
{
    return strcmp(((const cluster_entry *)a)->id, ((const cluster_entry *)b)->id);
}

/* Parse the output of the status command. The last line must be complete: without its newline, the
 * command may have been cut off. */
static gp_status listing_parse(cluster_listing *listing, const gp_buffer *output, const char *program,
                               gp_error *err)
{
    const char *at = gp_buffer_text(output), *end = at + output->bytes;
    char line[LINE_BYTES_MAX + 1], copy[120];
    gp_status status = GP_OK;

    for (unsigned number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t bytes = (size_t)((newline == NULL ? end : newline) - at);

        if (newline == NULL)
            status = gp_fail(err, GP_EPEER, "the line is incomplete; each line must end with a newline");
        else if (bytes > LINE_BYTES_MAX)
            status = gp_fail(err, GP_EPEER, "the line has more than %d bytes", LINE_BYTES_MAX);
        else if (memchr(at, '\0', bytes) != NULL)
            status = gp_fail(err, GP_EPEER, "the line has a NUL byte");
        if (status == GP_OK) {
            memcpy(line, at, bytes);
            line[bytes] = '\0';
            status = line_parse(listing, line, err);
        }
        if (status != GP_OK) {
            gp_error_prefix(err, "line %u of the status command '%s', '%s'", number, program,
                            shown(copy, at, bytes));
            return status;
        }
        at = newline + 1;
    }
    if (listing->count > 1)
        qsort(listing->entries, listing->count, sizeof(listing->entries[0]), entries_compare);
    for (size_t i = 1; i < listing->count; i++)
        if (strcmp(listing->entries[i - 1].id, listing->entries[i].id) == 0)
            return gp_fail(err, GP_EPEER, "the status command '%s' lists the id '%s' twice", program,
                           listing->entries[i].id);
    return GP_OK;
}

static gp_status command_list(const gp_profile *profile, cluster_listing *listing, gp_error *err)
{
    const place none = { NULL, NULL };
    cluster_tool tool = { 0 };
    cluster_tool_result result = { 0 };
    filled line;
    gp_status status = line_run(&line, &tool, &result, profile->status, &none, err);

    if (status == GP_OK && result.code != 0)
        status = cluster_tool_fail(err, GP_EPEER, &tool, &result);
    else if (status == GP_OK)
        status = listing_parse(listing, &result.output, line.words[0], err);
    cluster_tool_deinit(&result);
    gp_buffer_deinit(&line.text);
    return status;
}

/* ---- cancel ---- */

static gp_status command_cancel(const gp_profile *profile, const cluster_entry *entry, gp_error *err)
{
    const place places[] = { { "id", entry->id }, { "name", entry->name }, { NULL, NULL } };
    cluster_tool tool = { .output_max = CANCEL_OUTPUT_MAX };
    cluster_tool_result result = { 0 };
    filled line;
    gp_status status = line_run(&line, &tool, &result, profile->cancel, places, err);

    if (status == GP_OK && result.code != 0)
        status = cluster_tool_fail(err, GP_EPEER, &tool, &result);
    cluster_tool_deinit(&result);
    gp_buffer_deinit(&line.text);
    return status;
}

static void command_cancel_command(const gp_profile *profile, const cluster_entry *entry,
                                   char text[CLUSTER_COMMAND_BYTES])
{
    const place places[] = { { "id", entry->id }, { "name", entry->name }, { NULL, NULL } };
    gp_status status;
    gp_buffer out;
    filled line;

    gp_buffer_init(&out, CLUSTER_COMMAND_BYTES - 1);
    status = line_fill(&line, profile->cancel, places, NULL);
    for (size_t i = 0; status == GP_OK && line.words[i] != NULL; i++) {
        if (i > 0)
            status = gp_buffer_append(&out, " ", 1, NULL);
        if (status == GP_OK)
            status = gp_buffer_shell_word(&out, line.words[i], NULL);
    }
    snprintf(text, CLUSTER_COMMAND_BYTES, "%s", status == GP_OK ? gp_buffer_text(&out) : profile->cancel);
    gp_buffer_deinit(&line.text);
    gp_buffer_deinit(&out);
}

const cluster_engine cluster_engine_command = {
    .type = "command",
    .launch = command_launch,
    .list = command_list,
    .cancel = command_cancel,
    .script = command_script,
    .cancel_command = command_cancel_command,
};
