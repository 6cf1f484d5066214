/* Create run folders and write their files. run_folder.h lists the files. The file stays whole: all
 * functions share the state of one folder. */
#include "client/cli/jobs/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/jobs/job_self.h"
#include "client/cli/show.h"
#include "client/runs/run_index.h"
#include "client/runs/run_reader.h"
#include "client/runs/run_trim.h"
#include "common/base/printable.h"
#include "common/base/system/file.h"
#include "common/base/text/text.h"

/* Attempts to find an unused folder name, and the maximum network name length. */
enum {
    TRIES = 1000,
    NAME_BYTES = 40,
    LOCK_MS = 2000,
    LINE_BYTES_MAX = 1 << 16,
    END_BYTES = 4096, /* reserved for end.json */
};

/* Create a folder with an unused name and fill in folder->path. *err is written only if no name is
 * free. */
static gp_status folder_make(run_folder *folder, const char *network, gp_error *err)
{
    char stamp[32], name[NAME_BYTES];
    time_t now = time(NULL);
    struct tm local;
    char scratch[64], *end;
    const char *slash = strrchr(network, '/');
    bool made = false;

    if (mkdir("gradpool-runs", 0777) != 0 && errno != EEXIST)
        return gp_fail_errno(err, GP_EIO, "cannot create the folder gradpool-runs in the current directory");
    localtime_r(&now, &local);
    strftime(stamp, sizeof(stamp), "%Y-%m-%d-%H%M%S", &local);
    /* The name is the base name of the network without settings (":depth=2") and file extension,
     * cut between two characters: the index and the records hold UTF-8 only. Blanks and quotes
     * become underscores. */
    snprintf(name, sizeof(name), "%s", slash == NULL ? network : slash + 1);
    name[gp_utf8_prefix((const uint8_t *)name, strlen(name))] = '\0';
    name[strcspn(name, ":=,")] = '\0';
    end = strrchr(name, '.');
    if (end != NULL && end != name && (strcmp(end, ".onnx") == 0 || strcmp(end, ".json") == 0))
        *end = '\0';
    for (char *c = name; *c != '\0'; c++)
        if (strchr(" \t\"'", *c) != NULL || (unsigned char)*c < ' ')
            *c = '_';
    for (int i = 1; i <= TRIES && !made; i++) {
        if (i == 1)
            snprintf(folder->path, sizeof(folder->path), "gradpool-runs/%s-%s", stamp, name);
        else
            snprintf(folder->path, sizeof(folder->path), "gradpool-runs/%s-%s-%d", stamp, name, i);
        made = mkdir(folder->path, 0777) == 0;
        if (!made && errno != EEXIST)
            break;
    }
    if (!made)
        return gp_fail_errno(err, errno == EEXIST ? GP_EBUSY : GP_EIO, "cannot create the folder %s",
                             folder->path);
    /* Point gradpool-runs/latest at the folder. Errors are ignored: the link
     * is only a convenience. */
    snprintf(scratch, sizeof(scratch), "gradpool-runs/.latest-%d", (int)getpid());
    unlink(scratch);
    if (symlink(strrchr(folder->path, '/') + 1, scratch) == 0 && rename(scratch, "gradpool-runs/latest") != 0)
        unlink(scratch);
    return GP_OK;
}

static bool has_file(const char *folder, const char *name)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Return whether a folder is empty; a new ext4 file system has lost+found. */
static bool is_empty(const char *folder)
{
    static const char *const names[] = { ".", "..", "lost+found" };
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool empty = dir != NULL;

    while (empty && (entry = readdir(dir)) != NULL) {
        empty = false;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            empty |= strcmp(entry->d_name, names[i]) == 0;
    }
    if (dir != NULL)
        closedir(dir);
    return empty;
}

/* Use the folder of --folder: a run folder, or a folder that is empty or does not exist. A process
 * that was killed early may have left writer.lock only. */
static gp_status folder_named(run_folder *folder, gp_error *err)
{
    const char *name = folder->request.folder;

    if ((size_t)snprintf(folder->path, sizeof(folder->path), "%s", name) >= sizeof(folder->path))
        return gp_fail(err, GP_ELIMIT, "--folder is longer than %zu bytes", sizeof(folder->path) - 1);
    if (mkdir(folder->path, 0777) == 0)
        return GP_OK;
    if (errno != EEXIST)
        return gp_fail_errno(err, GP_EIO, "cannot create the folder %s", name);
    if (!has_file(name, "job.json") && !has_file(name, "writer.lock") && !is_empty(name))
        return gp_fail(err, GP_EINVAL, "--folder %s exists and is not a run folder; use an empty or new one",
                       name);
    return GP_OK;
}

/* Open a file of the folder for appending. */
static FILE *folder_file(const run_folder *folder, const char *name)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    return fopen(path, "ae");
}

/* Lock the folder against other writers. Readers hold the lock for a moment only. */
static gp_status lock_folder(run_folder *folder, gp_error *err)
{
    char path[600];
    gp_status status;

    snprintf(path, sizeof(path), "%s/writer.lock", folder->path);
    folder->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (folder->lock < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write to the folder %s", folder->path);
    status = gp_file_lock_wait(folder->lock, LOCK_MS);
    if (status == GP_EBUSY)
        gp_fail(err, status, "another training writes to the folder %s", folder->path);
    else if (status != GP_OK)
        gp_fail_errno(err, status, "cannot lock %s", path);
    return status;
}

/* Open metrics.jsonl for appending, in place of the open file. */
static gp_status open_metrics(run_folder *folder, gp_error *err)
{
    char path[600];
    FILE *metrics;

    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder->path);
    metrics = fopen(path, "ae");
    if (metrics == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot write to the folder %s", folder->path);
    if (folder->metrics != NULL)
        fclose(folder->metrics);
    folder->metrics = metrics;
    folder->torn[0] = run_is_torn(path);
    return GP_OK;
}

/* Remove a file that describes the end of an earlier attempt. */
static void folder_remove(const run_folder *folder, const char *name)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    unlink(path);
}

/* Write job.json of a training that is not a job. */
static gp_status write_command(const run_folder *folder, gp_error *err)
{
    const run_folder_request *request = &folder->request;
    json_document json;
    char path[600];

    job_self_put_command(show_json_object(&json, true), request->argc, request->argv, request->options);
    snprintf(path, sizeof(path), "%s/job.json", folder->path);
    return show_json_write_record(&json, path, err);
}

/* Return whether the folder has metrics. */
static bool has_steps(const char *folder)
{
    char path[600];
    struct stat info;

    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    return stat(path, &info) == 0 && info.st_size > 0;
}

static gp_status fail_used(const char *folder, gp_error *err)
{
    return gp_fail(err, GP_EBUSY,
                   "the folder %s has the steps of another training; resume it with --resume, or use "
                   "another --folder",
                   folder);
}

gp_status run_folder_claim(run_folder *folder, const char *path, bool resumes, gp_error *err)
{
    gp_status status;

    if (!has_file(path, "job.json"))
        return GP_OK;
    if (!resumes && has_steps(path))
        return fail_used(path, err);
    snprintf(folder->path, sizeof(folder->path), "%s", path);
    status = lock_folder(folder, err);
    folder->path[0] = '\0'; /* set by run_folder_open() */
    return status;
}

/* Open end.json as a draft with reserved space, so that a run that fails because the disk is full
 * can store the reason. Without O_TMPFILE a killed process would leave the draft behind; end.json
 * is then created at the end. */
static void reserve_end(run_folder *folder)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/end.json", folder->path);
    if (gp_file_draft_open(&folder->end, path, NULL) == GP_OK &&
        (folder->end.named || fallocate(folder->end.fd, FALLOC_FL_KEEP_SIZE, 0, END_BYTES) != 0))
        gp_file_draft_discard(&folder->end);
}

/* Open the files of the folder. */
static gp_status open_files(run_folder *folder, bool job, gp_error *err)
{
    gp_status status = folder->lock >= 0 ? GP_OK : lock_folder(folder, err);

    /* An earlier attempt of a cluster job may be suspended with the lock; the fence stops it. */
    if (job && status == GP_EBUSY)
        status = GP_OK;
    if (status == GP_OK)
        status = open_metrics(folder, err);
    if (status != GP_OK)
        return status;
    folder->continued = has_steps(folder->path);
    if (folder->continued && job_self_folder() == NULL && folder->request.options->resume[0] == '\0' &&
        folder->request.options->run_id[0] == '\0')
        return fail_used(folder->path, err);
    folder_remove(folder, "end.json");
    folder_remove(folder, "report.json");
    reserve_end(folder);
    if (!job) {
        folder->log = folder_file(folder, "log");
        if (folder->log == NULL)
            return gp_fail_errno(err, GP_EIO, "cannot write to the folder %s", folder->path);
        status = write_command(folder, err);
    }
    return status == GP_OK ? worker_lines_open(&folder->workers, folder->path, err) : status;
}

/* A search for a folder in the index. */
typedef struct index_search {
    const char *folder;
    bool found;
} index_search;

static bool index_compare(void *context, const run_entry *entry)
{
    index_search *search = context;

    search->found = strcmp(entry->folder, search->folder) == 0;
    return !search->found;
}

/* Add the folder to the index, unless an earlier attempt did. Each attempt creates result/, so the
 * first one need not search the index. An error is only reported: the index is a convenience. */
static void add_to_index(const run_folder *folder)
{
    char *absolute = realpath(folder->path, NULL);
    index_search search = { .folder = absolute };
    gp_error err;

    if (folder->request.state_dir != NULL && absolute != NULL && has_file(folder->path, "result"))
        run_index_each(folder->request.state_dir, index_compare, &search, NULL);
    if (folder->request.state_dir != NULL && absolute != NULL && !search.found &&
        run_index_append(folder->request.state_dir, absolute, folder->began, &err) != GP_OK)
        fprintf(stderr, "the run is missing in `gradpool runs`: %s\n", err.message);
    free(absolute);
}

/* Open the file of --metrics. A resumed training continues it. */
static gp_status open_copy(run_folder *folder, gp_error *err)
{
    const char *path = folder->request.metrics_copy;

    if (path == NULL)
        return GP_OK;
    folder->copy = fopen(path, folder->request.options->resume[0] != '\0' ? "ae" : "we");
    if (folder->copy == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot write --metrics %s", path);
    folder->torn[1] = run_is_torn(path);
    return GP_OK;
}

gp_status run_folder_open(run_folder *folder, const run_folder_request *request, gp_error *err)
{
    const bool job = job_self_folder() != NULL && request->folder == NULL;
    char path[600];
    gp_status status;

    folder->request = *request;
    gp_buffer_init(&folder->line, LINE_BYTES_MAX);
    if (job_self_folder() != NULL)
        job_self_options(request->options, job); /* else job.json of the folder has them now */
    if (job) {
        snprintf(folder->path, sizeof(folder->path), "%s", job_self_folder());
        status = GP_OK;
    } else {
        status =
            request->folder != NULL ? folder_named(folder, err) : folder_make(folder, request->network, err);
    }
    if (status == GP_OK)
        status = open_files(folder, job, err);
    if (status == GP_OK)
        status = open_copy(folder, err);
    if (status == GP_OK)
        add_to_index(folder);
    snprintf(path, sizeof(path), "%s/result", folder->path);
    if (status == GP_OK && mkdir(path, 0777) != 0 && errno != EEXIST)
        status = gp_fail_errno(err, GP_EIO, "cannot create the folder %s", path);
    if (status == GP_OK) {
        job_self_link(folder->path, "metrics.jsonl");
    } else {
        run_folder_close(folder, NULL, NULL);
        folder->path[0] = '\0'; /* the folder may belong to another training */
    }
    return status;
}

void run_folder_start(run_folder *folder)
{
    job_self_now(folder->began);
}

static void put_indices(gp_json_writer *writer, const uint32_t *indices, uint32_t count)
{
    gp_json_begin_array(writer, "worker_index");
    for (uint32_t i = 0; i < count; i++)
        gp_json_put_integer(writer, NULL, indices[i]);
    gp_json_end_array(writer);
}

/* Write facts.json. Errors are ignored. */
static void write_info(const run_folder *folder)
{
    const gp_train_info *info = &folder->info;
    json_document json;
    char path[600];

    if (folder->path[0] == '\0') /* the folder could not be created */
        return;
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_put_text(writer, "network", folder->request.network);
    gp_json_put_text(writer, "data", folder->request.data);
    gp_json_put_integer(writer, "workers", info->workers);
    put_indices(writer, info->worker_index, info->workers);
    gp_json_put_integer(writer, "batch", info->batch);
    gp_json_put_integer(writer, "steps_per_epoch", info->steps_per_epoch);
    gp_json_put_integer(writer, "epochs", info->epochs);
    gp_json_put_integer(writer, "samples", (int64_t)info->samples);
    gp_json_put_integer(writer, "validation_samples", (int64_t)info->validation_samples);
    gp_json_put_integer(writer, "parameters", (int64_t)info->parameters);
    gp_json_put_integer(writer, "classes", info->classes);
    gp_json_put_text(writer, "began", folder->began);
    gp_json_begin_array(writer, "leases");
    for (uint32_t i = 0; i < folder->lease_count; i++)
        gp_json_put_integer(writer, NULL, (int64_t)folder->leases[i]);
    gp_json_end_array(writer);
    snprintf(path, sizeof(path), "%s/facts.json", folder->path);
    show_json_write_record(&json, path, NULL);
    job_self_link(folder->path, "facts.json");
}

/* Record a run lease; keep the latest RUN_FOLDER_LEASES_MAX. false: already recorded. */
static bool add_lease(run_folder *folder, uint64_t lease)
{
    for (uint32_t i = 0; i < folder->lease_count; i++)
        if (folder->leases[i] == lease)
            return false;
    if (folder->lease_count == RUN_FOLDER_LEASES_MAX)
        memmove(folder->leases, folder->leases + 1, --folder->lease_count * sizeof(folder->leases[0]));
    folder->leases[folder->lease_count++] = lease;
    return true;
}

void run_folder_facts(run_folder *folder, const gp_train_info *info)
{
    folder->info = *info;
    add_lease(folder, info->lease);
    write_info(folder);
}

/* Append and flush a line to metrics.jsonl and to the copy. */
static void folder_line(run_folder *folder, const char *line)
{
    FILE *files[] = { folder->metrics, folder->copy };

    for (int i = 0; i < 2; i++) {
        if (files[i] == NULL)
            continue;
        if (folder->torn[i])
            fputc('\n', files[i]);
        folder->torn[i] = fputs(line, files[i]) == EOF || fflush(files[i]) != 0;
        if (!folder->torn[i])
            continue;
        folder->lost++; /* reported at the end; readers skip a part of a line */
        folder->problem = errno;
        clearerr(files[i]);
    }
}

/* Write a step or validation as a line of metrics.jsonl. */
static void write_metrics(run_folder *folder, const metric *table, const void *record)
{
    gp_json_writer writer;

    gp_buffer_clear(&folder->line);
    gp_json_writer_init(&writer, &folder->line, false);
    metrics_put(&writer, table, record);
    if (gp_json_writer_finish(&writer, NULL) == GP_OK &&
        gp_buffer_append(&folder->line, "\n", 1, NULL) == GP_OK)
        folder_line(folder, gp_buffer_text(&folder->line));
}

/* Write a line in place of steps whose metrics are lost: the client was killed after the workers
 * had saved the checkpoint, before it received the metrics.
 *   last   last recorded step
 *   steps  step of the checkpoint */
static void write_missing(run_folder *folder, uint64_t last, uint64_t steps)
{
    char line[100];

    if (last >= steps)
        return;
    snprintf(line, sizeof(line), "{\"step\": %" PRIu64 ", \"missing_steps\": %" PRIu64 "}\n", steps,
             steps - last);
    folder_line(folder, line);
}

/* Remove the lines that this training repeats from the file of --metrics. */
static gp_status trim_copy(run_folder *folder, uint64_t steps, uint64_t validations, gp_error *err)
{
    struct stat info;
    char *path;

    if (folder->copy == NULL || fstat(fileno(folder->copy), &info) != 0 || !S_ISREG(info.st_mode) ||
        info.st_size == 0)
        return GP_OK;
    path = strdup(folder->request.metrics_copy);
    if (path == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a path");
    char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;

    if (slash != NULL)
        *slash = '\0';
    gp_status status = run_trim(slash == NULL     ? "."
                                : path[0] == '\0' ? "/"
                                                  : path,
                                name, steps, validations, NULL, err);

    if (status == GP_OK) { /* the file was replaced */
        fclose(folder->copy);
        folder->copy = NULL;
        status = open_copy(folder, err);
    }
    free(path);
    return status;
}

/* Remove the lines of an earlier attempt that this training repeats, from each file in which that
 * is possible. Return the first error. */
static gp_status trim(run_folder *folder, uint64_t steps, uint64_t validations, gp_error *err)
{
    uint64_t last;
    gp_error why;
    gp_status status = run_trim(folder->path, "metrics.jsonl", steps, validations, &last, err);

    if (status == GP_OK)
        status = open_metrics(folder, err);
    if (status == GP_OK) {
        job_self_link(folder->path, "metrics.jsonl"); /* the first link refers to the old file */
        write_missing(folder, last, steps);
    }
    if (worker_lines_resume(folder->workers, steps, &why) != GP_OK && status == GP_OK)
        status = gp_fail(err, why.code, "%s", why.message);
    return status;
}

/* Prepare the files for the first step or validation.
 *   steps, validations  last step and validation of an earlier attempt that are kept */
static void folder_begin(run_folder *folder, uint64_t steps, uint64_t validations)
{
    const run_folder_request *request = &folder->request;
    gp_error err;

    if (folder->begun || folder->metrics == NULL)
        return;
    folder->begun = true;
    if (folder->continued && trim(folder, steps, validations, &err) != GP_OK)
        fprintf(stderr, "the metrics have some steps twice: %s\n", err.message);
    if (trim_copy(folder, steps, validations, &err) != GP_OK)
        fprintf(stderr, "the file of --metrics has some steps twice: %s\n", err.message);
    if (run_board_open(&folder->board, folder->path, request->board, request->network, request->data,
                       request->options, folder->continued ? steps + 1 : 0, &err) != GP_OK)
        fprintf(stderr, "there are no curves for TensorBoard: %s\n", err.message);
}

void run_folder_step(run_folder *folder, const gp_train_step *step, int64_t now_ms)
{
    if (!folder->begun)
        folder_begin(folder, step->step - 1, step->step - 1);
    if (step->rank == 0)
        write_metrics(folder, metrics_of_step, step);
    if (folder->workers != NULL)
        worker_lines_add(folder->workers, step, now_ms);
    if (folder->board != NULL)
        run_board_step(folder->board, step, now_ms);
}

void run_folder_usage(run_folder *folder, uint32_t worker, uint64_t cpu_ms_total, uint64_t memory_bytes)
{
    if (folder->workers != NULL)
        worker_lines_usage(folder->workers, worker, cpu_ms_total, memory_bytes);
}

void run_folder_validation(run_folder *folder, const gp_train_validation_result *validation)
{
    if (!folder->begun)
        folder_begin(folder, validation->step, validation->step - 1);
    write_metrics(folder, metrics_of_validation, validation);
    if (folder->board != NULL)
        run_board_validation(folder->board, validation);
}

void run_folder_regroup(run_folder *folder, const gp_train_rescale *regroup)
{
    json_document json;
    gp_json_writer *writer = show_json_object(&json, false);

    gp_json_put_integer(writer, "step", (int64_t)regroup->step);
    gp_json_put_integer(writer, "workers_before", regroup->workers_before);
    gp_json_put_integer(writer, "workers", regroup->workers);
    put_indices(writer, regroup->worker_index, regroup->workers);
    gp_json_put_number(writer, "paused_seconds", regroup->seconds);
    gp_json_put_bool(writer, "died", regroup->died);
    gp_json_put_text(writer, "cause", regroup->cause);
    gp_json_end_object(writer);
    if (gp_json_writer_finish(writer, NULL) == GP_OK && gp_buffer_printf(&json.text, NULL, "\n") == GP_OK)
        folder_line(folder, gp_buffer_text(&json.text));
    gp_buffer_deinit(&json.text);
    if (add_lease(folder, regroup->lease))
        write_info(folder);
}

void run_folder_put_summary(gp_json_writer *writer, const gp_training_summary *summary)
{
    gp_json_put_integer(writer, "samples", (int64_t)summary->samples_trained);
    gp_json_put_integer(writer, "steps", (int64_t)summary->steps);
    gp_json_put_number(writer, "loss", summary->loss);
    gp_json_put_number(writer, "validation_loss", summary->validation_loss);
    gp_json_put_number(writer, "validation_accuracy", summary->validation_accuracy);
    if (!isnan(summary->validation_rmse))
        gp_json_put_number(writer, "validation_rmse", summary->validation_rmse);
    gp_json_put_integer(writer, "training_excluded", (int64_t)summary->training_excluded);
    gp_json_put_integer(writer, "validation_excluded", (int64_t)summary->validation_excluded);
    gp_json_put_number(writer, "seconds", summary->seconds);
    gp_json_put_integer(writer, "skipped", (int64_t)summary->skipped);
    gp_json_put_integer(writer, "restarts", summary->restarts);
    gp_json_put_integer(writer, "resizes", summary->resizes);
    gp_json_put_number(writer, "paused_seconds", summary->paused_seconds);
}

/* Write end.json: final state, failure reason, and summary. */
static gp_status write_end(run_folder *folder, const gp_training_summary *summary, const gp_error *failure,
                           gp_error *err)
{
    char path[600], ended[32];
    gp_json_writer writer;
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, LINE_BYTES_MAX);
    gp_json_writer_init(&writer, &text, true);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_text(&writer, "state",
                     failure != NULL          ? "failed"
                     : summary->stopped       ? "stopped"
                     : summary->early_stopped ? "stopped early"
                                              : "completed");
    if (failure != NULL) {
        gp_json_put_text(&writer, "reason", failure->message);
        gp_json_put_text(&writer, "error", gp_status_name(failure->code));
    }
    job_self_now(ended);
    gp_json_put_text(&writer, "ended", ended);
    if (summary != NULL)
        run_folder_put_summary(&writer, summary);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    snprintf(path, sizeof(path), "%s/end.json", folder->path);
    if (status == GP_OK && folder->end.fd < 0)
        status = gp_file_draft_open(&folder->end, path, err);
    if (status == GP_OK && !gp_write_all(folder->end.fd, text.data, text.bytes))
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    if (status == GP_OK)
        status = gp_file_draft_commit(&folder->end, err);
    gp_buffer_deinit(&text);
    return status;
}

/* Close a file of lines. An error, which network file systems report late, counts as a lost
 * line. */
static void close_lines(run_folder *folder, FILE *file)
{
    if (file == NULL || fclose(file) == 0)
        return;
    folder->lost++;
    folder->problem = errno;
}

/* Close the log, and report lines that could not be written. */
static void close_log(const run_folder *folder)
{
    if (folder->log == NULL)
        return;
    const bool failed = ferror(folder->log) != 0;

    if (fclose(folder->log) != 0 || failed)
        fprintf(stderr, "%s/log is incomplete: it could not be written\n", folder->path);
}

void run_folder_close(run_folder *folder, const gp_training_summary *summary, const gp_error *failure)
{
    gp_error err;

    if (folder->metrics != NULL && (summary != NULL || failure != NULL) &&
        write_end(folder, summary, failure, &err) != GP_OK)
        fprintf(stderr, "the state of the run is lost: %s\n", err.message);
    gp_file_draft_discard(&folder->end);
    folder->lost += worker_lines_close(folder->workers, &folder->problem);
    folder->lost += run_board_close(folder->board, failure == NULL, &folder->problem);
    close_lines(folder, folder->metrics);
    close_lines(folder, folder->copy);
    close_log(folder);
    folder->workers = NULL;
    folder->board = NULL;
    gp_buffer_deinit(&folder->line);
    if (folder->lost > 0)
        fprintf(stderr, "cannot write %" PRIu64 " line%s of metrics: %s\n", folder->lost,
                gp_plural(folder->lost), strerror(folder->problem));
    if (folder->lock >= 0)
        close(folder->lock);
    folder->lock = -1;
    folder->metrics = folder->log = folder->copy = NULL;
}
