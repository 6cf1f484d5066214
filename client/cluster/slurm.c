/* Implement slurm.h. sbatch launches, squeue lists and scancel cancels.
 *
 * All settings are #SBATCH lines of one script, which `submit --dry-run` shows and sbatch reads
 * from standard input. The SBATCH_* variables of the user are removed, since they take precedence
 * over such lines, and so are the SLURM_* variables of an allocation in which `submit` may run. */
#include "client/cluster/slurm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client/cluster/job_folder.h"
#include "client/cluster/profile.h"
#include "client/cluster/tool.h"
#include "common/base/printable.h"

enum {
    SCRIPT_MAX = 64 << 10,
    VARIABLE_BYTES = 4200,
    NOTICE_MIN_S = 20, /* SIGTERM before the time limit, seconds; a tenth of the limit if that is between */
    NOTICE_MAX_S = 300,
    NOTICE_FALLBACK_S = 120, /* the limit is unknown */
    FIELDS = 6,              /* of a line of squeue */
};

/* Variables of sbatch, which passes them all to the job; the others are in command.json. The last
 * two are for sbatch and its plug-ins. A list of names in --export would have the same effect, but
 * Slurm then runs a login shell on the node before the job (--get-user-env), which takes as long as
 * the user's profile: 1.8 s of 2.4 s from sbatch to the first line of the script in a test. */
static const char *const exported[] = { "PATH", "HOME",   "USER", "LOGNAME",         "SHELL",
                                        "LANG", "LC_ALL", "TZ",   "LD_LIBRARY_PATH", "KRB5CCNAME",
                                        NULL };

static const char *const dropped[] = { "SBATCH_", "SLURM_", "SQUEUE_", "SCANCEL_", NULL };

/* Variables of a Slurm command. */
typedef struct slurm_variables {
    char configuration[VARIABLE_BYTES];
    const char *set[3];
} slurm_variables;

/* Remove variables that change the meaning of a Slurm command.
 *   unix_times  let it print times as seconds since 1970 */
static void set_variables(cluster_tool *tool, slurm_variables *variables, bool unix_times)
{
    const char *given = getenv("SLURM_CONF");
    int count = 0;

    memset(variables->set, 0, sizeof(variables->set));
    if (unix_times)
        variables->set[count++] = "SLURM_TIME_FORMAT=%s";
    if (given != NULL && (size_t)snprintf(variables->configuration, sizeof(variables->configuration),
                                          "SLURM_CONF=%s", given) < sizeof(variables->configuration))
        variables->set[count] = variables->configuration;
    tool->set = variables->set;
    tool->drop = dropped;
    tool->timeout_ms = CLUSTER_CALL_MS;
    /* the last line can end with an unrelated errno, such as "No error" for an unknown host */
    tool->cause = "Unable to";
}

static gp_status slurm_run(cluster_tool_result *result, cluster_tool *tool, bool unix_times, gp_error *err)
{
    slurm_variables variables;
    gp_status status;

    set_variables(tool, &variables, unix_times);
    status = cluster_tool_run(result, tool, err);
    tool->set = NULL;
    return status;
}

/* ---- script ---- */

/* Append "#SBATCH OPTION", quoted if necessary. */
static gp_status put_option(gp_buffer *out, const char *option, gp_error *err)
{
    gp_status status = gp_buffer_printf(out, err, "#SBATCH ");

    if (option[strcspn(option, " \t\"'\\#")] == '\0')
        return status == GP_OK ? gp_buffer_printf(out, err, "%s\n", option) : status;
    if (status == GP_OK)
        status = gp_buffer_append(out, "\"", 1, err);
    for (; status == GP_OK && *option != '\0'; option++) {
        if (*option == '"' || *option == '\\')
            status = gp_buffer_append(out, "\\", 1, err);
        if (status == GP_OK)
            status = gp_buffer_append(out, option, 1, err);
    }
    return status == GP_OK ? gp_buffer_append(out, "\"\n", 2, err) : status;
}

/* Append "#SBATCH --NAME=VALUE" with a formatted option. */
static gp_status put_format(gp_buffer *out, gp_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static gp_status put_format(gp_buffer *out, gp_error *err, const char *format, ...)
{
    char option[GP_PROFILE_BYTES_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(option, sizeof(option), format, arguments);
    va_end(arguments);
    return put_option(out, option, err);
}

static int64_t notice_s(int64_t time_s)
{
    int64_t tenth = time_s / 10;

    return time_s == 0            ? NOTICE_FALLBACK_S
           : tenth < NOTICE_MIN_S ? NOTICE_MIN_S
           : tenth > NOTICE_MAX_S ? NOTICE_MAX_S
                                  : tenth;
}

/* Append the lines of the resources and limits that the profile sets. */
static gp_status put_resources(gp_buffer *out, const gp_profile *profile, int64_t time_s, gp_error *err)
{
    int64_t mib = 0;
    gp_status status = GP_OK;

    if (profile->cores > 0)
        status = put_format(out, err, "--cpus-per-task=%" PRId64, profile->cores);
    if (status == GP_OK && profile->gpus > 0)
        status = put_format(out, err, "--gres=gpu:%" PRId64, profile->gpus);
    if (status == GP_OK && profile->memory[0] != '\0')
        status = gp_profile_memory_mib(profile->memory, &mib, err);
    if (status == GP_OK && mib > 0)
        status = put_format(out, err, "--mem=%" PRId64 "M", mib);
    if (status == GP_OK && time_s > 0) /* in minutes, rounded up */
        status = put_format(out, err, "--time=%" PRId64, (time_s + 59) / 60);
    if (status == GP_OK && profile->account[0] != '\0')
        status = put_format(out, err, "--account=%s", profile->account);
    if (status == GP_OK && profile->partition[0] != '\0')
        status = put_format(out, err, "--partition=%s", profile->partition);
    return status;
}

/* Append the --export line, and a comment for those who copy the script. */
static gp_status put_export(gp_buffer *out, gp_error *err)
{
    gp_status status = gp_buffer_printf(
        out, err, "#SBATCH --export=ALL\n# gradpool starts sbatch with these variables only:");

    for (size_t i = 0; status == GP_OK && exported[i] != NULL; i++)
        if (getenv(exported[i]) != NULL)
            status = gp_buffer_printf(out, err, " %s", exported[i]);
    return status == GP_OK ? gp_buffer_append(out, "\n", 1, err) : status;
}

/* Append the options of the profile, one per line; they come last and take precedence. */
static gp_status put_user_options(gp_buffer *out, const char *lines, gp_error *err)
{
    gp_status status = GP_OK;

    while (status == GP_OK && *lines != '\0') {
        size_t bytes = strcspn(lines, "\n");

        if (bytes > 0)
            status = put_format(out, err, "%.*s", (int)bytes, lines);
        lines += bytes + (lines[bytes] == '\n');
    }
    return status;
}

static gp_status slurm_script(const gp_profile *profile, const cluster_launch *launch, gp_buffer *out,
                              gp_error *err)
{
    int64_t time_s = launch->time_s;
    gp_status status = GP_OK;

    /* sbatch expands % and \ in the name of the output file. */
    if (launch->folder[0] != '/' || launch->folder[strcspn(launch->folder, "%\\\"\n")] != '\0')
        return gp_fail(err, GP_EINVAL,
                       "the job's folder is '%.200s'; it must be absolute, without %%, \\ and \"",
                       launch->folder);
    if (time_s == 0 && profile->time[0] != '\0')
        status = gp_profile_time_s(profile->time, &time_s, err);
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, "#!/bin/sh\n");
    if (status == GP_OK)
        status = put_format(out, err, "--job-name=%s", launch->name);
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, "#SBATCH --nodes=1\n#SBATCH --ntasks=1\n");
    if (status == GP_OK)
        status = put_resources(out, profile, time_s, err);
    if (status == GP_OK)
        status = gp_buffer_printf(
            out, err, "#SBATCH --signal=TERM@%" PRId64 "\n#SBATCH %s\n#SBATCH --open-mode=append\n",
            notice_s(time_s), launch->requeue ? "--requeue" : "--no-requeue");
    if (status == GP_OK)
        status = put_format(out, err, "--output=%s/engine.out", launch->folder);
    if (status == GP_OK)
        status = put_format(out, err, "--chdir=/");
    if (status == GP_OK)
        status = put_export(out, err);
    if (status == GP_OK)
        status = put_user_options(out, profile->slurm_options, err);
    /* A step: Slurm signals a pre-emption to steps only, not to the script. */
    if (status == GP_OK)
        status = gp_buffer_printf(out, err,
                                  "exec srun --nodes=1 --ntasks=1 --cpus-per-task=\"$SLURM_CPUS_ON_NODE\" ");
    if (status == GP_OK)
        status = gp_buffer_shell_word(out, profile->gradpool, err);
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, " job-attempt ");
    if (status == GP_OK)
        status = gp_buffer_shell_word(out, launch->folder, err);
    return status == GP_OK ? gp_buffer_append(out, "\n", 1, err) : status;
}

/* ---- launch ---- */

/* Return whether an error message of sbatch means that slurmctld may have accepted the job: a
 * failure of the communication, not a refusal. */
static bool is_unknown(const cluster_tool_result *result)
{
    /* not "contact" alone: plug-ins of sites ask users to contact their support */
    static const char *const words[] = {
        "socket",
        "timed out",
        "timeout",
        "unable to contact",
        "connect",
        "transmi",
        "communication",
        "slurmctld",
        "munge",
        "credential",
        "broken pipe",
        "unexpected message",
        "message length",
        "send failure",
        "receive failure",
        "unpack",
        "protocol version",
    };
    const char *text = gp_buffer_text(&result->errors);

    if (result->code > 128) /* killed */
        return true;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasestr(text, words[i]) != NULL)
            return true;
    return false;
}

/* Return whether `id` is a job id of Slurm. It becomes a word of a command, so it is checked. */
static bool is_id(const char *id)
{
    size_t bytes = strlen(id);

    return bytes > 0 && bytes <= 10 && id[0] != '0' && strspn(id, "0123456789") == bytes;
}

/* Create engine.out with mode 0600, before slurmd creates it with a mode of its own. */
static void output_create(const char *folder)
{
    char path[VARIABLE_BYTES];
    int fd = -1;

    if ((size_t)snprintf(path, sizeof(path), "%s/engine.out", folder) < sizeof(path))
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0)
        close(fd);
}

static const char *const sbatch_words[] = { "sbatch", "--parsable", NULL };

static cluster_tool_prepared *slurm_prepare(const gp_profile *profile)
{
    cluster_tool tool = { .words = sbatch_words, .keep = exported };
    cluster_tool_prepared *prepared;
    slurm_variables variables;
    gp_error ignored;
    (void)profile;

    set_variables(&tool, &variables, false);
    return cluster_tool_prepare(&prepared, &tool, &ignored) == GP_OK ? prepared : NULL;
}

static gp_status slurm_launch(const gp_profile *profile, const cluster_launch *launch,
                              char id[CLUSTER_ID_BYTES], gp_error *err)
{
    cluster_tool tool = { .words = sbatch_words,
                          .keep = exported,
                          .output_max = 4096,
                          .prepared = launch->prepared,
                          .one_line = true };
    cluster_tool_result result;
    gp_buffer script;
    gp_status status;

    gp_buffer_init(&script, SCRIPT_MAX);
    status = slurm_script(profile, launch, &script, err);
    tool.input = gp_buffer_text(&script);
    tool.input_bytes = script.bytes;
    if (status == GP_OK) {
        output_create(launch->folder);
        status = slurm_run(&result, &tool, false, err);
        if (status == GP_ELIMIT)
            status = err->code = GP_EPEER; /* it ran, so the outcome is unknown */
        if (status == GP_OK && result.code != 0) {
            status = cluster_tool_fail(err, is_unknown(&result) ? GP_EPEER : GP_EINVAL, &tool, &result);
            cluster_tool_deinit(&result);
        } else if (status == GP_OK) {
            char text[CLUSTER_ID_BYTES];

            snprintf(text, sizeof(text), "%.60s", gp_buffer_text(&result.output));
            text[strcspn(text, ";\n")] = '\0'; /* ID[;CLUSTER] */
            if (is_id(text))
                strcpy(id, text);
            else
                status =
                    gp_fail(err, GP_EPEER, "sbatch printed '%.60s' instead of a job id", gp_printable(text));
            cluster_tool_deinit(&result);
        }
    }
    gp_buffer_deinit(&script);
    return status;
}

/* ---- test ---- */

/* Let sbatch check the script of a job. It prints when and where the job would start. */
static gp_status slurm_test(const gp_profile *profile, const cluster_launch *launch,
                            char note[CLUSTER_REASON_BYTES], gp_error *err)
{
    cluster_tool tool = { .words = (const char *const[]){ "sbatch", "--test-only", NULL },
                          .keep = exported,
                          .output_max = 4096 };
    cluster_tool_result result = { 0 };
    gp_buffer script;
    gp_status status;

    gp_buffer_init(&script, SCRIPT_MAX);
    status = slurm_script(profile, launch, &script, err);
    tool.input = gp_buffer_text(&script);
    tool.input_bytes = script.bytes;
    if (status == GP_OK)
        status = slurm_run(&result, &tool, false, err);
    if (status == GP_OK && result.code != 0) {
        status = cluster_tool_fail(err, is_unknown(&result) ? GP_EPEER : GP_EINVAL, &tool, &result);
    } else if (status == GP_OK) {
        snprintf(note, CLUSTER_REASON_BYTES, "%.*s", (int)strcspn(gp_buffer_text(&result.errors), "\n"),
                 gp_buffer_text(&result.errors));
        gp_printable(note);
    }
    cluster_tool_deinit(&result);
    gp_buffer_deinit(&script);
    return status;
}

/* ---- list ---- */

static const struct {
    const char *word;
    cluster_entry_state state;
} states[] = {
    { "PENDING", CLUSTER_ENTRY_QUEUED },      { "REQUEUED", CLUSTER_ENTRY_QUEUED },
    { "REQUEUE_HOLD", CLUSTER_ENTRY_QUEUED }, { "REQUEUE_FED", CLUSTER_ENTRY_QUEUED },
    { "SPECIAL_EXIT", CLUSTER_ENTRY_QUEUED }, { "RESV_DEL_HOLD", CLUSTER_ENTRY_QUEUED },
    { "SUSPENDED", CLUSTER_ENTRY_QUEUED },    { "STOPPED", CLUSTER_ENTRY_QUEUED },
    { "RUNNING", CLUSTER_ENTRY_RUNNING },     { "CONFIGURING", CLUSTER_ENTRY_RUNNING },
    { "COMPLETING", CLUSTER_ENTRY_RUNNING },  { "SIGNALING", CLUSTER_ENTRY_RUNNING },
    { "STAGE_OUT", CLUSTER_ENTRY_RUNNING },   { "RESIZING", CLUSTER_ENTRY_RUNNING },
    { "COMPLETED", CLUSTER_ENTRY_ENDED },     { "CANCELLED", CLUSTER_ENTRY_ENDED },
    { "FAILED", CLUSTER_ENTRY_ENDED },        { "TIMEOUT", CLUSTER_ENTRY_ENDED },
    { "NODE_FAIL", CLUSTER_ENTRY_ENDED },     { "PREEMPTED", CLUSTER_ENTRY_ENDED },
    { "BOOT_FAIL", CLUSTER_ENTRY_ENDED },     { "DEADLINE", CLUSTER_ENTRY_ENDED },
    { "OUT_OF_MEMORY", CLUSTER_ENTRY_ENDED }, { "REVOKED", CLUSTER_ENTRY_ENDED },
};

/* Return the state for a word. A job in a state of a newer Slurm counts as running: it may have
 * processes. */
static cluster_entry_state state_of(const char *word)
{
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        if (strcmp(states[i].word, word) == 0)
            return states[i].state;
    return CLUSTER_ENTRY_RUNNING;
}

/* Return whether a line has all fields. */
static bool has_fields(const char *line)
{
    int bars = 0;

    for (; (line = strchr(line, '|')) != NULL; line++)
        bars++;
    return bars >= FIELDS - 1;
}

/* Return whether a line begins with the id of a job, or of a part of one: 7, 7_[1-5], 7+1. */
static bool has_id(const char *line)
{
    const char *end = line + strspn(line, "0123456789");

    return end > line && (*end == '|' || *end == '_' || *end == '+') && strchr(end, '|') != NULL;
}

/* Return whether a launch name is in a line. */
static bool has_name(const char *line)
{
    for (; (line = strstr(line, "gp-")) != NULL; line++) {
        char name[CLUSTER_NAME_BYTES];

        snprintf(name, sizeof(name), "%.19s", line);
        if (cluster_name_valid(name))
            return true;
    }
    return false;
}

/* Parse a line of squeue, ID|NAME|STATE|START|NODES|REASON, in place, and add gradpool's jobs. The
 * name comes before all texts that can contain '|': a site can set the reason of a job to any text,
 * and other jobs can have any name. */
static gp_status take_line(cluster_listing *listing, char *line, gp_error *err)
{
    char *field[FIELDS] = { line };
    cluster_entry *entry;
    gp_status status;

    for (int i = 1; i < FIELDS; i++) {
        char *bar = strchr(field[i - 1], '|');

        if (bar == NULL)
            return gp_fail(err, GP_EPEER, "malformed line '%.60s' in the output of squeue",
                           gp_printable(line));
        *bar = '\0';
        field[i] = bar + 1;
    }
    if (!cluster_name_valid(field[1]))
        return GP_OK;
    if (!is_id(field[0]))
        return gp_fail(err, GP_EPEER, "malformed job id '%.40s' in the output of squeue",
                       gp_printable(field[0]));
    status = cluster_listing_add(listing, &entry, err);
    if (status != GP_OK)
        return status;
    const cluster_entry_state state = state_of(gp_printable(field[2]));

    entry->state = state;
    snprintf(entry->name, sizeof(entry->name), "%s", field[1]);
    snprintf(entry->id, sizeof(entry->id), "%s", field[0]);
    gp_printable(field[4]);
    gp_printable(field[5]);
    if (state == CLUSTER_ENTRY_QUEUED) {
        bool given = field[5][0] != '\0' && strcmp(field[5], "None") != 0;

        if (given)
            snprintf(entry->text, sizeof(entry->text), "%s (%.40s)", field[2], field[5]);
        else
            snprintf(entry->text, sizeof(entry->text), "%s", field[2]);
        snprintf(entry->reason, sizeof(entry->reason), "%.150s", given ? field[5] : "");
        entry->expected_start_s = field[3][0] >= '1' && field[3][0] <= '9' ? strtoll(field[3], NULL, 10) : 0;
    } else if (state == CLUSTER_ENTRY_RUNNING) {
        snprintf(entry->text, sizeof(entry->text), "%s on %.40s", field[2], field[4]);
    } else {
        snprintf(entry->text, sizeof(entry->text), "%s", field[2]);
        snprintf(entry->reason, sizeof(entry->reason), "%s", field[2]);
    }
    return GP_OK;
}

/* --states=all also lists jobs that ended in the last minutes (MinJobAge). An incomplete last line
 * means that squeue was interrupted. Other jobs of the user can have a newline in their names, so a
 * line without all fields and without a launch name is skipped. If there are only such lines, and
 * none begins with an id, the output is another text, not a listing without jobs. */
static gp_status slurm_list(const gp_profile *profile, cluster_listing *listing, gp_error *err)
{
    char user[16];
    const char *words[] = { "squeue", "--noheader", "--states=all",
                            "--user", user,         "--format=%i|%j|%T|%S|%N|%r",
                            NULL };
    cluster_tool tool = { .words = words };
    cluster_tool_result result;
    size_t before = listing->count;
    const char *odd = NULL;
    bool listed = false;
    gp_status status;

    (void)profile;
    snprintf(user, sizeof(user), "%u", (unsigned)getuid());
    status = slurm_run(&result, &tool, true, err);
    if (status != GP_OK)
        return status;
    if (result.code != 0)
        status = cluster_tool_fail(err, GP_EPEER, &tool, &result);
    for (char *line = (char *)result.output.data, *end; status == GP_OK && line != NULL && *line != '\0';
         line = end + 1) {
        end = strchr(line, '\n');
        if (end == NULL) {
            status = gp_fail(err, GP_EPEER, "the output of squeue is incomplete");
            break;
        }
        *end = '\0';
        if (!has_fields(line) && !has_name(line)) {
            listed |= has_id(line);
            odd = line;
            continue;
        }
        listed = true;
        status = take_line(listing, line, err);
    }
    if (status == GP_OK && odd != NULL && !listed)
        status = gp_fail(err, GP_EPEER, "malformed line '%.60s' in the output of squeue", odd);
    cluster_tool_deinit(&result);
    if (status != GP_OK)
        listing->count = before;
    return status;
}

/* ---- cancel ---- */

/* Run scancel for a job. ended_ok: a job that Slurm no longer knows is no error. */
static gp_status scancel(const cluster_entry *entry, const char *const words[], bool ended_ok, gp_error *err)
{
    cluster_tool tool = { .words = words, .output_max = 4096 };
    cluster_tool_result result;
    gp_status status;

    if (!is_id(entry->id))
        return gp_fail(err, GP_EINVAL, "'%.40s' is not a job id of Slurm", entry->id);
    status = slurm_run(&result, &tool, false, err);
    if (status != GP_OK)
        return status;
    if (result.code != 0 &&
        !(ended_ok && strcasestr(gp_buffer_text(&result.errors), "invalid job id") != NULL))
        status = cluster_tool_fail(err, GP_EPEER, &tool, &result);
    cluster_tool_deinit(&result);
    return status;
}

static gp_status slurm_cancel(const gp_profile *profile, const cluster_entry *entry, gp_error *err)
{
    (void)profile;
    return scancel(entry, (const char *const[]){ "scancel", entry->id, NULL }, true, err);
}

/* Signal the steps of a job. The batch script gets no signal, as before a pre-emption. */
static gp_status slurm_notice(const gp_profile *profile, const cluster_entry *entry, gp_error *err)
{
    (void)profile;
    return scancel(entry, (const char *const[]){ "scancel", "--signal=TERM", entry->id, NULL }, false, err);
}

static void slurm_cancel_command(const gp_profile *profile, const cluster_entry *entry,
                                 char text[CLUSTER_COMMAND_BYTES])
{
    (void)profile;
    snprintf(text, CLUSTER_COMMAND_BYTES, "scancel %s", entry->id);
}

const cluster_engine cluster_engine_slurm = {
    .type = "slurm",
    .launch = slurm_launch,
    .prepare = slurm_prepare,
    .list = slurm_list,
    .cancel = slurm_cancel,
    .script = slurm_script,
    .cancel_command = slurm_cancel_command,
    .test = slurm_test,
    .notice = slurm_notice,
};
