/* The job of `gradpool cluster validate`: submit it, follow it through its stages, and end it. */
#include "client/cli/cluster/validate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/cli/cluster/job_check.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/system/directory.h"

enum {
    TIME_S = 600,       /* time limit of the job, if the profile has no shorter one */
    STAGE_MS = 120000,  /* time limit of a stage of a running job */
    SILENT_MS = 60000,  /* time after which failing listings end the validation */
    LIST_HERE_MS = 250, /* poll intervals, if this host sees the folder of the job */
    ROUND_HERE_MS = 30,
    LIST_ELSEWHERE_MS = 1000, /* poll intervals, if each poll opens a connection */
    ROUND_ELSEWHERE_MS = 300,
    LOG_MAX = 1 << 20,
    CLOCK_TOLERANCE_MS = 30000,
    VARIABLES_MAX = 64,
};

extern char **environ;

/* Job of a validation, and what this process has observed so far. */
typedef struct follow {
    validation *v;
    const cluster_site *site;
    cluster_pass_result pass;
    gp_buffer log;        /* of all attempts so far */
    int64_t listed_ms;    /* last listing; 0: none */
    int64_t answered_ms;  /* last listing that succeeded */
    int64_t stage_ms;     /* when the last stage passed */
    int64_t submitted_ms; /* on the monotonic clock */
    int64_t launched_unix_ms;
    bool noticed;                                              /* the notice has been sent */
    char waits[CLUSTER_TEXT_BYTES + CLUSTER_REASON_BYTES + 2]; /* as printed last */
} follow;

/* Return whether the job folder is on another host, so that each poll of the job opens a
 * connection. */
static bool is_elsewhere(const follow *f)
{
    return f->site->engine->facts != NULL;
}

/* ---- submit ---- */

/* Choose the variables of the job as `gradpool submit` does, without --env. */
static void choose_variables(const follow *f, const char *chosen[VARIABLES_MAX + 1])
{
    size_t count = 0;

    for (char **at = environ; !is_elsewhere(f) && *at != NULL && count < VARIABLES_MAX; at++) {
        char name[128];
        size_t bytes = strcspn(*at, "=");

        snprintf(name, sizeof(name), "%.*s", (int)bytes, *at);
        if (bytes < sizeof(name) && gp_job_variable_allowed(name))
            chosen[count++] = *at;
    }
    chosen[count] = NULL;
}

/* Create the record of the job. */
static gp_status job_create(follow *f, gp_error *err)
{
    validation *v = f->v;
    const gp_profile *profile = &v->place->profile;
    const char *variables[VARIABLES_MAX + 1];
    char gpus[24], limit[24];
    const char *words[] = { "job-check", gpus, v->data };
    int64_t time_s = TIME_S;
    cluster_submit submit = { .profile = v->name,
                              .label = "validate",
                              .time = limit,
                              .directory = is_elsewhere(f) && profile->directory[0] == '\0' ? "/" : "",
                              .variables = variables,
                              .requeue = true,
                              .words = words,
                              .word_count = 3,
                              .array = "" };

    choose_variables(f, variables);
    if (profile->time[0] != '\0' && gp_profile_time_s(profile->time, &time_s, NULL) == GP_OK &&
        time_s > TIME_S)
        time_s = TIME_S;
    snprintf(limit, sizeof(limit), "%" PRId64 "s", time_s);
    snprintf(gpus, sizeof(gpus), "%" PRId64, profile->gpus);
    return cluster_submit_create(&v->record, v->place, &submit, err);
}

/* Launch the job. Return whether the engine may have accepted it. */
static bool job_launch(follow *f)
{
    validation *v = f->v;
    gp_error err;
    gp_status status = job_create(f, &err);

    f->submitted_ms = f->stage_ms = f->answered_ms = gp_now_ms();
    f->launched_unix_ms = gp_unix_ms();
    if (status == GP_OK) {
        if (!is_elsewhere(f))
            snprintf(v->folder, sizeof(v->folder), "%s", v->record.path);
        status = cluster_drive(f->site, &v->record, NULL, &f->pass, &err);
    }
    cluster_record_close(&v->record);
    if (status == GP_OK && v->record.job.end == CLUSTER_END_REFUSED)
        status = f->pass.trouble.code != GP_OK ? (err = f->pass.trouble).code
                                               : gp_fail(&err, GP_EPERM, "%s", v->record.job.reason);
    if (status == GP_OK)
        return true;
    validate_fail(v, VALIDATE_ALLOCATION, err.message);
    return v->record.job.state != CLUSTER_ENDED && v->record.job.launches > 0;
}

/* ---- poll ---- */

/* Append new text of the log. */
static void log_read(follow *f)
{
    static char text[1 << 16];
    size_t got = 0;

    do
        if (cluster_file_read(f->site, f->v->record.job.name, "log", f->log.bytes, text, sizeof(text), &got,
                              NULL) != GP_OK ||
            gp_buffer_append(&f->log, text, got, NULL) != GP_OK)
            return;
    while (got == sizeof(text));
}

/* Update the record of the job, and cancel the job first if `cancel` is set. List the jobs of the
 * engine first if the last listing is too old. */
static gp_status job_visit(follow *f, bool cancel, gp_error *err)
{
    cluster_record *record = &f->v->record;
    cluster_shared_listing shared = { .changes = record->job.changes, .requested_ms = gp_now_ms() };
    cluster_listing listing = { 0 };
    char name[CLUSTER_NAME_BYTES];
    gp_error trouble = { .code = GP_OK };
    gp_status status;

    if (shared.requested_ms - f->listed_ms >= (is_elsewhere(f) ? LIST_ELSEWHERE_MS : LIST_HERE_MS)) {
        f->listed_ms = shared.requested_ms;
        if (f->site->engine->list(&f->v->place->profile, &listing, &trouble) == GP_OK) {
            shared.listing = &listing;
            f->answered_ms = gp_now_ms();
        }
    }
    memcpy(name, record->job.name, sizeof(name));
    status = cluster_visit(f->site, name, cancel, CLUSTER_LOCK_WAIT_MS, &shared, record, &f->pass, err);
    if (trouble.code != GP_OK)
        f->pass.trouble = trouble;
    cluster_listing_deinit(&listing);
    log_read(f);
    return status;
}

/* Print why the job waits in the queue, each time that the reason changes. Fail the stage if the
 * job can never start. */
static void check_queue(follow *f)
{
    static const char *const stuck[] = {
        "ccount",         "QOS",      "PartitionTimeLimit", "PartitionNodeLimit",
        "BadConstraints", "JobHeld",  "requeued held",      "launch failed",
        "ImagePull",      "ErrImage", "InvalidImage",       "ContainerConfigError"
    };
    static const char *const passing[] = { "QOSGrp", "QOSMax", "AssocGrp", "AssocMax" };
    const cluster_entry *entry = &f->v->record.job.seen.entry;
    char text[sizeof(f->waits)];
    bool fails = false;

    for (size_t i = 0; i < sizeof(stuck) / sizeof(stuck[0]); i++)
        fails = fails || strstr(entry->reason, stuck[i]) != NULL;
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) /* limits of running jobs */
        fails = fails && strstr(entry->reason, passing[i]) == NULL;
    if (fails) {
        validate_fail(f->v, VALIDATE_ALLOCATION, entry->reason);
        return;
    }

    snprintf(text, sizeof(text), "%s%s%s", entry->text, entry->reason[0] != '\0' ? ", " : "", entry->reason);
    if (!f->v->quiet && strcmp(text, f->waits) != 0)
        fprintf(stderr, "job %s:%s waits: %s\n", f->v->record.profile, f->v->record.job.id, text);
    memcpy(f->waits, text, sizeof(text));
}

/* Find the last line of a text that contains `words`, or begins with them. Return its beginning;
 * NULL: no line. */
static const char *line_find(const char *text, const char *words, bool begins)
{
    const char *found = NULL;

    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *at = strstr(line, words);

        if (at != NULL && (begins ? at == line : at < line + strcspn(line, "\n")))
            found = line;
    }
    return found;
}

/* ---- stages ---- */

static void stage_done(follow *f)
{
    f->stage_ms = gp_now_ms();
}

/* Compare the clock of the job's host with that of this host, once the attempt has begun. */
static void stage_allocation(follow *f)
{
    const cluster_job *job = &f->v->record.job;
    const cluster_facts *facts = &job->seen.facts;
    const int64_t ahead_ms = facts->begin_ms - gp_unix_ms(),
                  behind_ms = f->launched_unix_ms - facts->begin_ms;
    char text[400];

    if (!facts->begun)
        return;
    f->v->queue_seconds = (double)(gp_now_ms() - f->submitted_ms) / 1000;
    if (ahead_ms > CLOCK_TOLERANCE_MS || behind_ms > CLOCK_TOLERANCE_MS) {
        snprintf(
            text, sizeof(text),
            "the clock of %s is %.0f s %s this host; set the clocks of both by NTP, such as with 'chronyc "
            "makestep'",
            facts->host, (double)(ahead_ms > 0 ? ahead_ms : behind_ms) / 1000,
            ahead_ms > 0 ? "ahead of" : "behind");
        validate_fail(f->v, VALIDATE_ALLOCATION, text);
        return;
    }
    validate_pass(f->v, VALIDATE_ALLOCATION, "job %s on %s, %.1f s after the launch", job->id, facts->host,
                  f->v->queue_seconds);
    stage_done(f);
}

/* Compare the version in the first line of the log, "== attempt 1 on HOST, job ID, BUILD ==", with
 * the version of this program. */
static void stage_build(follow *f)
{
    const char *log = gp_buffer_text(&f->log), *line = line_find(log, "== attempt 1 on ", true);
    const char *end = line != NULL ? strchr(line, '\n') : NULL;
    const char *build = end != NULL ? strstr(line, ", gradpool ") : NULL;
    char found[80] = "an older version of gradpool", text[400];

    if (end == NULL)
        return;
    if (build != NULL && build < end)
        snprintf(found, sizeof(found), "%.*s", (int)(strcspn(build, "=") - strlen(",  ")),
                 build + strlen(", "));
    if (strcmp(found, gp_version()) == 0) {
        validate_pass(f->v, VALIDATE_BUILD, "%s", found);
        stage_done(f);
        return;
    }
    snprintf(
        text, sizeof(text),
        "%s has %s, this host has %s; install the same version on both, or set 'gradpool' in the profile to "
        "its path there",
        f->v->record.job.seen.facts.host, gp_printable(found), gp_version());
    validate_fail(f->v, VALIDATE_BUILD, text);
}

/* Read the result of a check from the log, where job-check writes it. */
static void stage_checked(follow *f, validate_stage stage, const char *word)
{
    const char *log = gp_buffer_text(&f->log), *line, *text;
    char prefix[64], found[300];

    snprintf(prefix, sizeof(prefix), JOB_CHECK_PREFIX "%s ", word);
    line = line_find(log, prefix, true);
    if (line == NULL || strchr(line, '\n') == NULL)
        return;
    text = line + strlen(prefix);
    snprintf(found, sizeof(found), "%.*s", (int)strcspn(text, "\n"), text);
    if (strncmp(found, "passed ", 7) == 0) {
        validate_pass(f->v, stage, "%s", found + 7);
        stage_done(f);
    } else {
        validate_fail(f->v, stage, found + strcspn(found, " ") + 1);
    }
}

/* Pass the stage when the log has the first line of the training's table of steps. */
static void stage_job(follow *f)
{
    const char *line = gp_buffer_text(&f->log);

    for (; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        char *end;

        if (*line == '|' && strtol(line + 1, &end, 10) > 0 && end[strspn(end, " ")] == '|') {
            validate_pass(f->v, VALIDATE_JOB, "first step %.1f s after the launch",
                          (double)(gp_now_ms() - f->submitted_ms) / 1000);
            stage_done(f);
            return;
        }
    }
}

/* Send the notice that announces the end of the allocation, once. Pass the stage when the engine
 * has requeued the job. */
static void stage_notice(follow *f)
{
    const cluster_engine *engine = f->site->engine;
    const cluster_job *job = &f->v->record.job;
    const char *stopped;
    gp_error err;

    if (engine->notice == NULL) {
        validate_skip(f->v, VALIDATE_NOTICE, "engine '%s' has no command for the notice", engine->type);
        return;
    }
    if (!f->noticed && job->seen.live && job->seen.entry.state == CLUSTER_ENTRY_RUNNING) {
        f->noticed = true;
        if (engine->notice(&f->v->place->profile, &job->seen.entry, &err) != GP_OK)
            validate_fail(f->v, VALIDATE_NOTICE, err.message);
    } else if (f->noticed && job->state == CLUSTER_QUEUED && job->attempts_over > 0) {
        stopped = line_find(gp_buffer_text(&f->log), "stopped after ", true);
        if (stopped != NULL)
            validate_pass(f->v, VALIDATE_NOTICE, "%.*s; requeued", (int)strcspn(stopped, "\n;"), stopped);
        else
            validate_fail(f->v, VALIDATE_NOTICE,
                          "the job was requeued, but the training had not stopped with a checkpoint; let the "
                          "engine send SIGTERM earlier");
        stage_done(f);
    }
}

/* ---- early end ---- */

/* Explain why a job ended before its attempt wrote a record. Only the output of the engine can name
 * the cause. */
static void explain_not_begun(follow *f)
{
    static const char *const missing[] = {
        "no program",        "not found",         "No such file or directory",
        "Permission denied", "Exec format error", "cannot execute"
    };
    const cluster_job *job = &f->v->record.job;
    const char *line = NULL, *state = job->reason[0] != '\0' ? job->reason : job->seen.entry.text;
    char output[4096], cause[600];
    size_t got = 0;

    if (cluster_file_read(f->site, job->name, "engine.out", 0, output, sizeof(output) - 1, &got, NULL) !=
        GP_OK)
        got = 0;
    output[got] = '\0';
    for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]) && line == NULL; i++)
        line = line_find(output, missing[i], false);
    if (line != NULL) {
        snprintf(cause, sizeof(cause), "%.*s", (int)strcspn(line, "\n"), line);
        validate_pass(f->v, VALIDATE_ALLOCATION, "job %s started", job->id);
        validate_fail(f->v, VALIDATE_BUILD, cause);
    } else if (got > 0) {
        snprintf(cause, sizeof(cause), "the job ended (%.100s): %.300s", state, output);
        validate_fail(f->v, VALIDATE_ALLOCATION, cause);
    } else if (is_elsewhere(f)) {
        snprintf(cause, sizeof(cause), "the job ended (%.100s) before gradpool began", state);
        validate_fail(f->v, VALIDATE_ALLOCATION, cause);
    } else {
        snprintf(cause, sizeof(cause),
                 "the job ended (%.100s) and wrote nothing to its folder in %.200s; set 'folder' in the "
                 "profile to "
                 "a path that this host and the hosts of the jobs share",
                 state, f->v->place->profile.folder);
        validate_fail(f->v, VALIDATE_ALLOCATION, cause);
    }
}

/* Explain why a job ended in a stage. */
static void explain_end(follow *f, validate_stage stage)
{
    const cluster_job *job = &f->v->record.job;
    const cluster_facts *facts = &job->seen.facts;
    const char *reason = facts->has_result ? facts->reason : job->reason, *line;
    char cause[600];

    if (!facts->begun) {
        explain_not_begun(f);
        return;
    }
    /* the message of the command that failed, such as "gradpool up: ..." */
    line = stage < VALIDATE_NOTICE ? line_find(gp_buffer_text(&f->log), "gradpool ", true) : NULL;
    if (line != NULL)
        snprintf(cause, sizeof(cause), "%.*s", (int)strcspn(line, "\n"), line);
    else
        snprintf(cause, sizeof(cause), "the job ended: %.300s",
                 reason[0] != '\0' ? reason : "no reason known");
    validate_fail(f->v, stage, cause);
}

/* ---- follow ---- */

/* Return the stage of the job that has no result yet. */
static validate_stage stage_of(const validation *v)
{
    validate_stage stage = VALIDATE_ALLOCATION;

    while (stage < VALIDATE_END && v->rows[stage].result != VALIDATE_OPEN)
        stage++;
    return stage;
}

/* Evaluate a stage after the record of the job was updated. */
static void stage_evaluate(follow *f, validate_stage stage)
{
    if (stage == VALIDATE_ALLOCATION)
        stage_allocation(f);
    else if (stage == VALIDATE_BUILD)
        stage_build(f);
    else if (stage == VALIDATE_DEVICES)
        stage_checked(f, stage, "devices");
    else if (stage == VALIDATE_DATA)
        stage_checked(f, stage, "data");
    else if (stage == VALIDATE_JOB)
        stage_job(f);
    else
        stage_notice(f);
}

/* Fail a stage whose time limit has passed. The time in the queue is unlimited. */
static void check_time(follow *f, validate_stage stage)
{
    const cluster_job *job = &f->v->record.job;
    const int64_t now_ms = gp_now_ms();
    char cause[500];

    if (now_ms - f->answered_ms > SILENT_MS) {
        snprintf(cause, sizeof(cause), "the engine has not answered for %d s: %.300s", SILENT_MS / 1000,
                 f->pass.trouble.message);
        validate_fail(f->v, stage, cause);
    } else if (stage == VALIDATE_ALLOCATION &&
               (job->state == CLUSTER_QUEUED || job->state == CLUSTER_LAUNCHING)) {
        stage_done(f);
    } else if (now_ms - f->stage_ms > STAGE_MS) {
        snprintf(cause, sizeof(cause), "no progress for %d s; the job is %s", STAGE_MS / 1000,
                 cluster_state_word(job->state));
        validate_fail(f->v, stage, cause);
    }
}

/* Follow the job until all stages before the end have a result. */
static gp_status job_follow(follow *f, gp_error *err)
{
    const cluster_job *job = &f->v->record.job;
    validate_stage stage;

    if (f->v->data[0] == '\0')
        validate_skip(f->v, VALIDATE_DATA, "no --data");
    while ((stage = stage_of(f->v)) != VALIDATE_END) {
        bool over;
        gp_status status = job_visit(f, false, err);

        if (status != GP_OK)
            return status;
        if (cli_stop != 0)
            return gp_fail(err, GP_ECANCELED, "interrupted");
        if (job->state == CLUSTER_QUEUED && stage == VALIDATE_ALLOCATION && job->seen.live)
            check_queue(f);
        /* the facts and the log were read after the listing that shows the end */
        over = job->state == CLUSTER_ENDED || job->has_result || job->seen.gone_ended;
        for (validate_stage next = stage; next != VALIDATE_STAGES;) {
            stage = next;
            stage_evaluate(f, stage);
            next =
                stage_of(f->v) != stage && stage_of(f->v) != VALIDATE_END ? stage_of(f->v) : VALIDATE_STAGES;
        }
        stage = stage_of(f->v);
        if (over && stage != VALIDATE_END)
            explain_end(f, stage);
        else if (stage != VALIDATE_END)
            check_time(f, stage);
        if (stage_of(f->v) != VALIDATE_END)
            gp_sleep_ms(is_elsewhere(f) ? ROUND_ELSEWHERE_MS : ROUND_HERE_MS);
    }
    return GP_OK;
}

/* Remove the record and the folder of a job that has ended. On other hosts its folder remains. */
static void job_remove(follow *f)
{
    char link[CLUSTER_PATH_BYTES + GP_PROFILE_NAME_MAX + CLUSTER_ID_BYTES + 3];
    const cluster_record *record = &f->v->record;

    snprintf(link, sizeof(link), "%s/%s-%s", f->site->root, record->profile, record->job.id);
    unlink(link);
    gp_directory_remove(record->path);
    f->v->folder[0] = '\0';
}

/* Cancel the job and wait until the engine has confirmed its end. */
static gp_status job_end(follow *f, gp_error *err)
{
    const int64_t begin_ms = gp_now_ms();
    cluster_record *record = &f->v->record;
    cluster_entry entry = { .exit_code = -1 };
    char command[CLUSTER_COMMAND_BYTES] = "", cause[CLUSTER_COMMAND_BYTES + 400];
    gp_status status = GP_OK;

    f->listed_ms = 0;
    while (status == GP_OK && record->job.state != CLUSTER_ENDED &&
           gp_now_ms() - begin_ms < CLUSTER_CANCEL_LIMIT_MS && cli_stop < 2) {
        status = job_visit(f, true, err);
        if (record->job.state != CLUSTER_ENDED)
            gp_sleep_ms(is_elsewhere(f) ? ROUND_ELSEWHERE_MS : ROUND_HERE_MS);
    }
    if (status == GP_OK && record->job.state == CLUSTER_ENDED) {
        validate_pass(f->v, VALIDATE_END, "canceled in %.1f s", (double)(gp_now_ms() - begin_ms) / 1000);
        return GP_OK;
    }
    snprintf(entry.name, sizeof(entry.name), "%s", record->job.name);
    snprintf(entry.id, sizeof(entry.id), "%s", record->job.id);
    f->site->engine->cancel_command(&f->v->place->profile, &entry, command);
    snprintf(
        cause, sizeof(cause), "the engine has not confirmed the end of the job for %d s: %.200s; try: %.300s",
        CLUSTER_CANCEL_LIMIT_MS / 1000, status != GP_OK ? err->message : f->pass.trouble.message, command);
    validate_fail(f->v, VALIDATE_END, cause);
    return status;
}

gp_status validate_job(validation *v, gp_error *err)
{
    follow f = { .v = v, .site = &v->place->site };
    gp_status status = GP_OK, ended = GP_OK;
    gp_error ignored;

    gp_buffer_init(&f.log, LOG_MAX);
    if (job_launch(&f)) {
        if (validate_failed(v) == VALIDATE_STAGES)
            status = job_follow(&f, err);
        ended = job_end(&f, status == GP_OK ? err : &ignored);
    }
    if (validate_failed(v) == VALIDATE_STAGES || v->record.job.end == CLUSTER_END_REFUSED)
        if (v->record.job.state == CLUSTER_ENDED)
            job_remove(&f);
    gp_buffer_deinit(&f.log);
    return status != GP_OK ? status : ended;
}
