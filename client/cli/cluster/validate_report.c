/* Results of `gradpool cluster validate`: lines, JSON, and fixes for known causes. */
#include <stdarg.h>

#include "client/cli/cluster/validate.h"
#include "client/cli/show.h"
#include "common/base/printable.h"

static const char *const stage_words[VALIDATE_STAGES] = { "profile", "engine",  "allocation",
                                                          "build",   "devices", "data",
                                                          "job",     "notice",  "end" };
static const char *const result_words[] = { "OPEN", "PASSED", "FAILED", "SKIPPED" };

/* Fixes of known causes. Messages of engines name a cause, but seldom a fix. */
static const struct {
    const char *words; /* part of the cause */
    const char *fix;
} fixes[] = {
    { "generic resource", "set 'gpus' in the profile to what a node has, or 'partition' to one with GPUs; "
                          "'sinfo -o \"%P %G\"' shows "
                          "both" },
    { "node configuration is not available", "lower 'gpus', 'cores' or 'memory' in the profile, or set "
                                             "'partition'; 'sinfo -o \"%P %c %m %G\"' shows what "
                                             "nodes have" },
    { "ccount", "set 'account' and 'partition' in the profile to open ones that you may use; "
                "'sacctmgr show associations "
                "user=$USER' and 'scontrol show partition' show them" },
    { "nvalid partition", "set 'partition' in the profile to one of 'sinfo -o %P'" },
    { "time limit",
      "set 'time' in the profile to at most the limit of the partition; 'sinfo -o \"%P %l\"' shows it" },
    { "credential", "set the clocks of all hosts by NTP, such as with 'chronyc makestep': Slurm refuses "
                    "messages that are 5 "
                    "minutes old" },
    /* slurmctld closes the connection if munge refuses the sender */
    { "Zero Bytes were transmitted", "set the clocks of this host and of the controller by NTP, such as with "
                                     "'chronyc makestep'; if they are right, munge needs the same key on "
                                     "both" },
    { "authentication", "set the clocks of this host and of the controller by NTP, such as with 'chronyc "
                        "makestep'; if they are right, munge needs the same key on both" },
    { "Image", "set 'image' in the profile to one that the nodes can pull" },
    { "No space left",
      "remove folders of ended jobs, or set 'folder' in the profile to another file system" },
    { "quota exceeded",
      "remove folders of ended jobs, or set 'folder' in the profile to another file system" },
    { "no program 'scontrol'", "install the commands of Slurm on the nodes, or add their folder to PATH "
                               "here: Slurm passes PATH to jobs" },
    { "set no CUDA_VISIBLE_DEVICES", "set File= in gres.conf of that host to the character devices of the "
                                     "GPUs, such as /dev/nvidia[0-3]" },
};

/* Fixes of other causes. */
static const char *const stage_fixes[VALIDATE_STAGES] = {
    [VALIDATE_PROFILE] = "correct the file of the profile",
    [VALIDATE_ENGINE] = "run the command of the engine by hand, such as 'squeue', and make it work",
    [VALIDATE_ALLOCATION] =
        "correct the resources in the profile; 'gradpool submit --profile NAME --dry-run -- "
        "train ...' shows what the engine gets",
    [VALIDATE_BUILD] =
        "install gradpool on the hosts of the jobs, or set 'gradpool' in the profile to its path "
        "there",
    [VALIDATE_DEVICES] = "run 'gradpool doctor' on that host",
    [VALIDATE_DATA] =
        "--data names a path on the hosts of the jobs; copy the data there, or correct the path",
    [VALIDATE_JOB] = "read the log in the folder of the job",
    [VALIDATE_NOTICE] = "read the log and engine.out in the folder of the job",
    [VALIDATE_END] = "cancel the job with the engine's own command",
};

/* Print the line of a stage, and the fix below it. */
static void row_print(const validation *v, validate_stage stage)
{
    const validate_row *row = &v->rows[stage];

    if (v->json || (v->quiet && row->result != VALIDATE_FAILED))
        return;
    printf("%-11s %-8s %s\n", stage_words[stage], result_words[row->result], row->text);
    if (row->result == VALIDATE_FAILED)
        printf("%-11s %-8s fix: %s\n", "", "", row->fix);
    fflush(stdout);
}

/* Set a result and print all rows up to the first one without a result. */
static void row_set(validation *v, validate_stage stage, validate_result result, const char *format,
                    va_list arguments)
{
    validate_row *row = &v->rows[stage];

    if (row->result != VALIDATE_OPEN)
        return;
    row->result = result;
    vsnprintf(row->text, sizeof(row->text), format, arguments);
    gp_printable(row->text);
    for (; v->printed < VALIDATE_STAGES && v->rows[v->printed].result != VALIDATE_OPEN; v->printed++)
        row_print(v, v->printed);
}

void validate_pass(validation *v, validate_stage stage, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    row_set(v, stage, VALIDATE_PASSED, format, arguments);
    va_end(arguments);
}

void validate_skip(validation *v, validate_stage stage, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    row_set(v, stage, VALIDATE_SKIPPED, format, arguments);
    va_end(arguments);
}

static void row_fail(validation *v, validate_stage stage, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void row_fail(validation *v, validate_stage stage, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    row_set(v, stage, VALIDATE_FAILED, format, arguments);
    va_end(arguments);
}

void validate_fail(validation *v, validate_stage stage, const char *cause)
{
    const char *own = strstr(cause, "; "), *fix = stage_fixes[stage];
    size_t bytes = strlen(cause);

    if (v->rows[stage].result != VALIDATE_OPEN)
        return;
    if (own != NULL && own[2] != '\0') {
        fix = own + 2;
        bytes = (size_t)(own - cause);
    }
    for (size_t i = 0; i < sizeof(fixes) / sizeof(fixes[0]); i++)
        if (strstr(cause, fixes[i].words) != NULL) {
            fix = fixes[i].fix;
            break;
        }
    snprintf(v->rows[stage].fix, sizeof(v->rows[stage].fix), "%s", fix);
    gp_printable(v->rows[stage].fix);
    row_fail(v, stage, "%.*s", (int)bytes, cause);
    for (validate_stage next = VALIDATE_PROFILE; next < VALIDATE_END; next++)
        validate_skip(v, next, "stage %s failed", stage_words[stage]);
}

validate_stage validate_failed(const validation *v)
{
    validate_stage stage = VALIDATE_PROFILE;

    while (stage < VALIDATE_STAGES && v->rows[stage].result != VALIDATE_FAILED)
        stage++;
    return stage;
}

gp_status validate_print_json(const validation *v, double seconds, gp_error *err)
{
    json_document document;
    gp_json_writer *writer = show_json_object(&document, true);

    gp_json_put_text(writer, "profile", v->name);
    gp_json_put_bool(writer, "passed", validate_failed(v) == VALIDATE_STAGES);
    gp_json_put_rounded(writer, "seconds", "%.3f", seconds);
    if (v->queue_seconds >= 0)
        gp_json_put_rounded(writer, "queue_seconds", "%.3f", v->queue_seconds);
    else
        gp_json_put_null(writer, "queue_seconds");
    gp_json_put_text(writer, "folder", v->folder);
    gp_json_begin_array(writer, "stages");
    for (validate_stage stage = VALIDATE_PROFILE; stage < VALIDATE_STAGES; stage++) {
        const validate_row *row = &v->rows[stage];

        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "stage", stage_words[stage]);
        gp_json_put_text(writer, "result", result_words[row->result]);
        gp_json_put_text(writer, "text", row->text);
        gp_json_put_text(writer, "fix", row->fix);
        gp_json_end_object(writer);
    }
    gp_json_end_array(writer);
    return show_json_print(&document, err);
}
