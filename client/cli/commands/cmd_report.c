/* `gradpool report`: show why a run failed, or save the report as a tar archive. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/jobs/job_wait.h"
#include "client/cli/jobs/report.h"
#include "client/cli/show.h"
#include "client/runs/run_reader.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"

typedef struct report_options {
    cli_common common;
    char out[512];
} report_options;

static const gp_param report_params[] = {
    { .name = "out",
      GP_PARAM_FIELD(report_options, out),
      .placeholder = "FILE.tar",
      .help = "write report.json and the ends of the logs to FILE.tar" },
    CLI_JSON_PARAM(report_options),
    CLI_REMOTE_PARAMS(report_options),
    CLI_COMMON_PARAMS(report_options),
    { 0 },
};

/* Lines shown per log, and number of last steps shown. */
enum { SHOWN_LINES = 12, SHOWN_STEPS = 8 };

/* Bytes that are fetched of each file on the host of a job. */
enum { FETCH_BYTES = 1 << 20, FETCHED_PATH_BYTES = 256 };

/* ---- text output ---- */

static const char *text_of(const gp_json *object, const char *key)
{
    return gp_json_text(gp_json_member(object, key), "");
}

static void show_field(const char *name, const char *text)
{
    printf("%-10s", name);
    show_line(stdout, text);
}

/* Return the time that a step spent in a phase, in milliseconds. */
static double time_of(const gp_json *step, const char *part)
{
    return gp_json_number(gp_json_member(gp_json_member(step, "time"), part), 0);
}

static void show_steps(const gp_json *steps)
{
    size_t count = gp_json_count(steps);

    if (count > 0)
        printf("\nlast steps (ms):\n%8s %6s %12s %8s %8s %8s %8s %8s %8s\n", "step", "worker", "loss", "data",
               "forward", "backward", "exchange", "commit", "wait");
    for (size_t i = count > SHOWN_STEPS ? count - SHOWN_STEPS : 0; i < count; i++) {
        const gp_json *step = gp_json_element(steps, i);

        if (gp_json_member(step, "time") != NULL)
            printf("%8" PRId64 " %6" PRId64 " %12.6g %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f\n",
                   gp_json_integer(gp_json_member(step, "step"), 0),
                   gp_json_integer(gp_json_member(step, "worker"), 0),
                   gp_json_number(gp_json_member(step, "loss"), 0), time_of(step, "data"),
                   time_of(step, "forward"), time_of(step, "backward"), time_of(step, "exchange"),
                   time_of(step, "commit"), time_of(step, "wait"));
    }
}

/* Get the state of a run: of its training, or else of its job.
 *   info  the job as the pool reports it; id 0: no job, or no pool is running */
static const char *state_of(const gp_json *report, const gp_job_info *info)
{
    const gp_json *end = gp_json_member(report, "end");
    const gp_json *last = gp_json_member(gp_json_member(report, "run"), "exit");

    if (gp_json_is_object(end))
        return text_of(end, "state");
    if (info->id != 0)
        return gp_job_state_word(info->state);
    if (!gp_json_is_object(last))
        return "not recorded";
    return gp_job_state_word(gp_json_integer(gp_json_member(last, "code"), -1) == 0 ? GP_JOB_DONE
                             : strcmp(text_of(last, "error"), "GP_ECANCELED") == 0  ? GP_JOB_CANCELED
                                                                                    : GP_JOB_FAILED);
}

static void show(const gp_json *report, const gp_job_info *info)
{
    const gp_json *error = gp_json_member(report, "error");
    const gp_json *run = gp_json_member(report, "run"), *exchange = gp_json_member(report, "exchange");
    const gp_json *logs = gp_json_member(report, "logs"), *topology = gp_json_member(report, "topology");
    const char *what = text_of(error, "message");
    const gp_json *words = gp_json_member(run, "arguments");
    char made[200], line[4096];

    if (*what == '\0')
        what = text_of(gp_json_member(run, "exit"), "message");
    show_field("folder:", text_of(report, "folder"));
    snprintf(made, sizeof(made), "%s by %s", text_of(report, "made"),
             text_of(gp_json_member(report, "versions"), "gradpool"));
    show_field("made:", made);
    printf("command:  ");
    for (size_t i = 0; i < gp_json_count(words); i++)
        printf("%s%s", i == 0 ? "" : " ",
               show_clean(line, sizeof(line), gp_json_text(gp_json_element(words, i), "?")));
    printf("\n");
    show_field("state:", state_of(report, info));
    show_field("error:", *what != '\0' ? what : "none");
    if (gp_json_is_object(topology))
        printf("workers:  %" PRId64 ", batch %" PRId64 ", steps per epoch: %" PRId64 "\n",
               gp_json_integer(gp_json_member(topology, "workers"), 0),
               gp_json_integer(gp_json_member(topology, "batch"), 0),
               gp_json_integer(gp_json_member(topology, "steps_per_epoch"), 0));
    show_steps(gp_json_member(report, "last_steps"));
    if (gp_json_count(exchange) > 0)
        printf("\n");
    for (size_t i = 0; i < gp_json_count(exchange); i++)
        show_line(stdout, gp_json_text(gp_json_element(exchange, i), ""));
    for (size_t i = 0; i < gp_json_count(logs); i++) {
        const char *tail = text_of(gp_json_element(logs, i), "tail"), *at = tail + strlen(tail);

        if (*tail == '\0') /* the log has no line of this run */
            continue;
        printf("\n== ");
        show_line(stdout, text_of(gp_json_element(logs, i), "name"));
        at -= at[-1] == '\n';
        for (int lines = SHOWN_LINES; at > tail && (at[-1] != '\n' || --lines > 0);)
            at--;
        for (size_t bytes; *at != '\0'; at += bytes + (at[bytes] == '\n')) {
            bytes = strcspn(at, "\n");
            snprintf(line, sizeof(line), "%.*s", bytes < sizeof(line) ? (int)bytes : (int)sizeof(line) - 1,
                     at);
            show_line(stdout, line);
        }
    }
}

/* ---- tar archive (POSIX.1-1988 ustar) ---- */

/* Append a file to the archive: header, data, and padding to a multiple of 512 bytes. */
static gp_status tar_add(gp_buffer *out, const char *name, const void *data, size_t bytes, gp_error *err)
{
    static const char zeros[512];
    char header[512] = { 0 };
    unsigned sum = 0;
    gp_status status;

    snprintf(header, 100, "%s", name);
    snprintf(header + 100, 8, "%07o", 0600u);
    snprintf(header + 108, 8, "%07o", 0u);
    snprintf(header + 116, 8, "%07o", 0u);
    snprintf(header + 124, 12, "%011zo", bytes);
    snprintf(header + 136, 12, "%011llo", (unsigned long long)time(NULL));
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof(header); i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    status = gp_buffer_append(out, header, sizeof(header), err);
    if (status == GP_OK)
        status = gp_buffer_append(out, data, bytes, err);
    if (status == GP_OK && bytes % 512 != 0)
        status = gp_buffer_append(out, zeros, 512 - bytes % 512, err);
    return status;
}

static gp_status write_tar(const char *path, const gp_buffer *text, const gp_json *report, gp_error *err)
{
    static const char end[1024];
    const gp_json *logs = gp_json_member(report, "logs");
    gp_buffer tar;

    gp_buffer_init(&tar, 4 * REPORT_BYTES_MAX);
    gp_status status = tar_add(&tar, "report/report.json", text->data, text->bytes, err);

    for (size_t i = 0; i < gp_json_count(logs) && status == GP_OK; i++) {
        const gp_json *log = gp_json_element(logs, i);
        char name[100];

        snprintf(name, sizeof(name), "report/logs/%.80s", text_of(log, "name"));
        status = tar_add(&tar, name, text_of(log, "tail"), strlen(text_of(log, "tail")), err);
    }
    if (status == GP_OK)
        status = gp_buffer_append(&tar, end, sizeof(end), err);
    if (status == GP_OK)
        status = gp_file_write(path, tar.data, tar.bytes, err);
    gp_buffer_deinit(&tar);
    return status;
}

/* ---- finding the run ---- */

/* Get the run folder of a job number or a path. GP_ENOENT: no such folder. */
static gp_status find_folder(char out[RUN_PATH_BYTES], const char *word, const gp_paths *paths, gp_error *err)
{
    struct stat info;
    uint64_t job;

    if (strchr(word, '/') == NULL && job_number(word, &job, NULL) == GP_OK)
        snprintf(out, RUN_PATH_BYTES, "%s/jobs/%" PRIu64, paths->state_dir, job);
    else
        snprintf(out, RUN_PATH_BYTES, "%s", word);
    if (stat(out, &info) != 0 || !S_ISDIR(info.st_mode))
        return gp_fail(err, GP_ENOENT,
                       "there is no run %s: %s is not a folder; 'gradpool jobs --all' lists jobs, other runs "
                       "are in gradpool-runs",
                       word, out);
    return GP_OK;
}

/* Copy a file of a job on another host into a folder. Of a long file only the ends are copied. A
 * missing file has no copy. */
static gp_status ends_fetch(const cluster_ref *ref, const char *name, const char *folder, gp_error *err)
{
    char path[700], *text = gp_malloc(FETCH_BYTES);
    size_t got = 0;
    gp_status status = text == NULL ? gp_fail(err, GP_ENOMEM, "no memory for %s", name) : GP_OK;

    if (status == GP_OK)
        status = cluster_file_read(&ref->place->site, ref->name, name, CLUSTER_READ_ENDS, text, FETCH_BYTES,
                                   &got, err);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (status == GP_OK)
        status = gp_file_write(path, text, got, err);
    gp_free(text);
    return status == GP_ENOENT ? GP_OK : status;
}

/* Create a temporary folder for copies. */
static gp_status fetched_create(char fetched[FETCHED_PATH_BYTES], gp_error *err)
{
    const char *given = getenv("TMPDIR"), *root = given != NULL && given[0] == '/' ? given : "/tmp";

    if (snprintf(fetched, FETCHED_PATH_BYTES, "%s/gpreport-XXXXXX", root) < FETCHED_PATH_BYTES &&
        mkdtemp(fetched) != NULL)
        return GP_OK;
    fetched[0] = '\0';
    return gp_fail_errno(err, GP_EIO, "cannot create a directory in %.200s", root);
}

/* Replace the job of a cluster on the command line by its folder.
 *   fetched  set to a temporary folder with copies if the files are on another host; the caller
 *            removes it
 *   shown    set to the folder on that host if it is known, else to the name of the job */
static gp_status cluster_folder(cli_call *call, char fetched[FETCHED_PATH_BYTES],
                                char shown[CLUSTER_COMMAND_BYTES], gp_error *err)
{
    static const char *const names[] = { "report.json", "job.json",      "facts.json",
                                         "end.json",    "metrics.jsonl", "log" };
    static char folder[CLUSTER_PATH_BYTES + CLUSTER_NAME_BYTES];
    cluster_ref ref;
    gp_status status = cluster_ref_open(&ref, call->words[0], err);

    if (status != GP_OK)
        return status;
    snprintf(folder, sizeof(folder), "%s/%s", ref.place->site.root, ref.name);
    if (ref.place->site.engine->read != NULL) {
        status = fetched_create(fetched, err);
        for (size_t i = 0; status == GP_OK && i < sizeof(names) / sizeof(names[0]); i++)
            status = ends_fetch(&ref, names[i], fetched, err);
        if (ref.place->profile.folder[0] != '\0')
            snprintf(shown, CLUSTER_COMMAND_BYTES, "%s/%s", ref.place->profile.folder, ref.name);
        else
            snprintf(shown, CLUSTER_COMMAND_BYTES, "%s", call->words[0]);
        snprintf(folder, sizeof(folder), "%s", fetched);
    }
    cluster_ref_close(&ref);
    call->words[0] = folder;
    return status;
}

/* Get the report for a job in a pool on another host. */
static gp_status get_elsewhere(cli_call *call, gp_buffer *out, gp_job_info *info, gp_error *err)
{
    report_source source = { .paths = NULL };
    gp_status status = job_number(call->words[0], &source.job, err);

    if (status == GP_OK)
        status = cli_open(call, true, &call->pool, err);
    if (status == GP_OK)
        status = gp_job_get(info, call->pool, source.job, err);
    if (status == GP_OK) {
        source.pool = call->pool;
        source.folder = info->folder;
        status = report_fetch(out, &source, err);
    }
    return status == GP_OK && out->bytes == 0 ? report_make(out, &source, NULL, err) : status;
}

static gp_status report_run(cli_call *call, gp_error *err)
{
    const report_options *options = call->options;
    char folder[RUN_PATH_BYTES] = "", path[RUN_PATH_BYTES + 32];
    char fetched[FETCHED_PATH_BYTES] = "", shown[CLUSTER_COMMAND_BYTES] = "";
    gp_paths paths;
    bool elsewhere = false;
    uint8_t *data;
    size_t bytes;
    gp_buffer text;
    gp_json *report = NULL;
    gp_job_info info = { .id = 0 };
    uint64_t job;

    if (call->word_count != 1) {
        call->code = cli_usage(call, "%s run? usage: gradpool report JOB|FOLDER",
                               call->word_count == 0 ? "which" : "more than one");
        return GP_OK;
    }
    gp_buffer_init(&text, REPORT_BYTES_MAX);
    gp_status status = cluster_word(call->words[0]) ? cluster_folder(call, fetched, shown, err)
                                                    : cli_elsewhere(call, &elsewhere, err);

    if (status == GP_OK && elsewhere) {
        status = get_elsewhere(call, &text, &info, err);
    } else if (status == GP_OK) {
        status = gp_paths_find(&paths, cli_pool_name(call), err);
        if (status == GP_OK)
            status = find_folder(folder, call->words[0], &paths, err);
        snprintf(path, sizeof(path), "%s/report.json", folder);
        /* the report written when the run failed, or else one made now */
        if (status == GP_OK && gp_file_read(&data, &bytes, path, REPORT_BYTES_MAX, NULL) == GP_OK) {
            status = gp_buffer_append(&text, data, bytes, err);
            gp_free(data);
        } else if (status == GP_OK) {
            report_source source = { .folder = folder, .shown = shown, .paths = &paths };

            snprintf(path, sizeof(path), "%s/command.json", folder);
            source.other_pool = fetched[0] != '\0' || access(path, F_OK) == 0; /* a job of a cluster */
            status = report_make(&text, &source, NULL, err);
        }
        /* without a running pool, use the state in the files */
        if (status == GP_OK && strchr(call->words[0], '/') == NULL &&
            job_number(call->words[0], &job, NULL) == GP_OK &&
            job_refresh(call, &call->pool, &info, job, NULL) != GP_OK)
            info.id = 0;
    }
    if (status == GP_OK)
        status = gp_json_parse(&report, gp_buffer_text(&text), text.bytes, err);
    if (status == GP_OK && options->out[0] != '\0')
        status = write_tar(options->out, &text, report, err);
    else if (status == GP_OK && options->common.json)
        printf("%s\n", gp_buffer_text(&text));
    else if (status == GP_OK)
        show(report, &info);
    if (fetched[0] != '\0')
        gp_directory_remove(fetched);
    gp_json_free(report);
    gp_buffer_deinit(&text);
    return status;
}

const cli_command cli_command_report = {
    .name = "report",
    .summary = "show why a run failed: error, last steps, exit reasons of workers, ends of logs",
    .usage = "JOB|FOLDER",
    .description =
        "Explain why a run failed. A report has the error, the command, the workers, the last steps with "
        "their time by phase, the final messages of each worker, and the ends of the logs. JOB is a "
        "number of `gradpool jobs`, or PROFILE:ID for a job of a cluster, and FOLDER the run folder of a "
        "training.",
    .examples = "  gradpool report 7\n"
                "  gradpool report 7 --pool gpu-box      # a job of a pool on another host\n"
                "  gradpool report hpc:4803\n"
                "  gradpool report gradpool-runs/2026-11-21-093000-lenet --out report.tar\n",
    .options = report_params,
    .options_bytes = sizeof(report_options),
    .words_max = 2,
    .run = report_run,
};
